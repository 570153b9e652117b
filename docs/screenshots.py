"""The screenshots of the docs, taken in Chromium from `dagster dev` over the demo:

    python docs/screenshots.py FOLDER [--images docs/images]

Makes the demo's collection in FOLDER where there is no caption_assets.yaml (any config that has the demo's dataset will do, with
another engine or store), captions a shard by the command, three by a backfill that is started by clicking, the rest by another,
and takes a picture of each page. FOLDER's path is seen on them. Needs the `test` extra and Chromium (apt-get install chromium).
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from PIL import Image
from playwright.sync_api import Browser, FloatRect, Page

from caption_assets.configfile import DEFAULT_PATH
from caption_assets.core.layout import Layout
from caption_assets.demo.collection import make_collection
from caption_assets_tests.browser import chromium, launch_backfill, new_page
from caption_assets_tests.project import Project
from caption_assets_tests.ui import UI, dagster_dev

DATASET = "shapes_tars"
JOB = f"{DATASET}_caption_shard"
FIRST_SHARD = "shapes-00000"
TARS = 8
MOST_BYTES = 250_000
MARGIN = 20
GRAPH = {"asset-graph-direction": "vertical", "asset-node-facets": ["checks", "kind-tag", "status"]}
"""Settings of the UI's graph, as it keeps them in the browser: narrow enough to be read where it is shown."""
SETTLE_MS = 3000
"""The UI paints in steps and says nothing when it is done."""


class Shots:
    """Pages of one `dagster dev`, saved as small PNG files."""

    def __init__(self, ui: UI, browser: Browser, images: Path) -> None:
        self.ui, self.browser, self.images = ui, browser, images

    def take(
        self,
        name: str,
        address: str,
        prepare: Callable[[Page], None] | None = None,
        width: int = 1440,
        height: int = 900,
        around: str | None = None,
    ) -> None:
        """address: a page of the UI, or a file:// one, which is shown whole. prepare: clicks before the picture is
        taken. around: a CSS selector; what it finds is cut out."""
        page = new_page(self.browser, width, height)
        page.goto(address if "://" in address else self.ui.url + address)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(SETTLE_MS)
        page.wait_for_function("() => !/Loading(…|\\.\\.\\.)/.test(document.body.innerText)")
        if prepare:
            prepare(page)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(SETTLE_MS)
        path = self.images / f"{name}.png"
        clip = surroundings(page, around) if around else None
        path.write_bytes(small(page.screenshot(clip=clip, full_page=address.startswith("file:"))))
        print(f"{path}: {path.stat().st_size:,} bytes", flush=True)
        page.context.close()


def surroundings(page: Page, selector: str) -> FloatRect:
    """The rectangle of all that the selector finds, with a margin."""
    boxes = [box for found in page.locator(selector).all() if (box := found.bounding_box())]
    left, top = min(box["x"] for box in boxes) - MARGIN, min(box["y"] for box in boxes) - MARGIN
    right = max(box["x"] + box["width"] for box in boxes) + MARGIN
    bottom = max(box["y"] + box["height"] for box in boxes) + MARGIN
    return {"x": left, "y": top, "width": right - left, "height": bottom - top}


def small(png: bytes) -> bytes:
    """The picture in at most 256 colours; PNG keeps it sharp. Raises ValueError when it is still large."""
    sink = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(sink, "PNG", optimize=True)
    if len(sink.getvalue()) > MOST_BYTES:
        raise ValueError(f"{len(sink.getvalue()):,} bytes are too many")
    return sink.getvalue()


def take_all(project: Project, ui: UI, browser: Browser, images: Path) -> None:
    """Captions the dataset by clicks, and takes all pictures."""
    shots, page = Shots(ui, browser, images), new_page(browser)
    shards = sorted(set().union(*ui.partitions(DATASET, "merged").values()))
    before = len(ui.backfills())
    launch_backfill(page, ui.url, JOB, shards[1:4])
    ui.wait_for(lambda: len(found := ui.backfills()) > before and found[0]["status"].startswith("COMPLETED"))
    shots.take("backfill", f"/runs/b/{ui.backfills()[0]['id']}", height=420)
    if ui.partitions(DATASET, "merged")["unmaterialized"]:
        launch_backfill(page, ui.url, JOB, preset="Missing")
        ui.wait_for(lambda: len(ui.partitions(DATASET, "merged")["materialized"]) == len(shards))
    materialize = ("asset", "materialize", "-m", "caption_assets.definitions", "--select")
    project.dagster(*materialize, f"{DATASET}/merged", "--partition", shards[-1])  # the check of a shard with faults is the last
    for job in ("caption_index", "report", "checks"):
        project.dagster("job", "execute", "-m", "caption_assets.definitions", "-j", f"{DATASET}_{job}")

    group, merged = f"/locations/caption_assets/asset-groups/{DATASET}", f"/assets/{DATASET}/merged"
    shots.take("asset-graph", group, narrow_graph, width=1240, height=1400, around="foreignObject")
    shots.take("shard", f"{merged}?view=partitions&partition={shards[1]}", height=960)
    shots.take("contact-sheet", f"{merged}?view=partitions&partition={shards[1]}", show_pictures)
    shots.take("plots", f"{merged}?view=overview", show_plots, height=1130)
    shots.take("failed-check", f"{merged}?view=checks&checkDetail=caption_coverage")
    layout = Layout(str(project.store), DATASET)
    shots.take("report", f"file://{layout.report_index}")
    shots.take("report-shard", f"file://{layout.report_page(shards[1])}")


def narrow_graph(page: Page) -> None:
    page.evaluate("settings => Object.entries(settings).forEach(([k, v]) => localStorage.setItem(k, JSON.stringify(v)))", GRAPH)
    page.reload()


def show_pictures(page: Page) -> None:
    page.get_by_text("Show Markdown").first.click()


def show_plots(page: Page) -> None:
    """From the table of an asset's metadata to its plots over partitions."""
    page.get_by_text("Plots", exact=True).click()
    page.wait_for_timeout(SETTLE_MS)
    page.get_by_text("captioned", exact=True).first.evaluate("e => e.parentElement.scrollIntoView({block: 'start'})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=Path, default=Path(__file__).parent / "images")
    options = parser.parse_args()
    folder = options.folder.absolute()
    if not (folder / DEFAULT_PATH).exists():
        make_collection(folder, tars=TARS)
    options.images.mkdir(parents=True, exist_ok=True)
    project = Project(folder, {})
    project.command("init")
    print(project.command("run", DATASET, "--shards", FIRST_SHARD), flush=True)
    with dagster_dev(folder, project.environment) as ui, chromium() as browser:
        take_all(project, ui, browser, options.images)


if __name__ == "__main__":
    main()

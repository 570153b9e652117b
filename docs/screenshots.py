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
from playwright.sync_api import Browser, Page

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
MOST_BYTES = 300_000
SETTLE_MS = 3000
"""The UI paints in steps and says nothing when it is done."""


class Shots:
    """Pages of one `dagster dev`, saved as small PNG files."""

    def __init__(self, ui: UI, browser: Browser, images: Path) -> None:
        self.ui, self.browser, self.images = ui, browser, images

    def take(
        self, name: str, address: str, prepare: Callable[[Page], None] | None = None, width: int = 1440, height: int = 900
    ) -> None:
        """address: a page of the UI, or a file:// one. prepare: clicks before the picture is taken."""
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
        path.write_bytes(small(page.screenshot()))
        print(f"{path}: {path.stat().st_size:,} bytes", flush=True)
        page.context.close()


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
    launch_backfill(page, ui.url, JOB, shards[1:4])
    ui.wait_for(lambda: all(backfill["status"].startswith("COMPLETED") for backfill in ui.backfills()))
    shots.take("backfill", f"/runs/b/{ui.backfills()[0]['id']}", height=420)
    if ui.partitions(DATASET, "merged")["unmaterialized"]:
        launch_backfill(page, ui.url, JOB, preset="Missing")
        ui.wait_for(lambda: len(ui.partitions(DATASET, "merged")["materialized"]) == len(shards))
    materialize = ("asset", "materialize", "-m", "caption_assets.definitions", "--select")
    project.dagster(*materialize, f"{DATASET}/merged", "--partition", shards[-1])  # the check of a shard with faults is the last
    for job in ("caption_index", "report", "checks"):
        project.dagster("job", "execute", "-m", "caption_assets.definitions", "-j", f"{DATASET}_{job}")

    shots.take("asset-graph", f"/locations/caption_assets/asset-groups/{DATASET}", width=2400, height=1200)
    merged = f"/assets/{DATASET}/merged?view=partitions&partition={shards[1]}"
    shots.take("shard", merged)
    shots.take("contact-sheet", merged, lambda page: page.get_by_text("Show Markdown").first.click())
    shots.take("plots", f"/assets/{DATASET}/captions?view=overview", show_plots)
    shots.take("failed-check", f"/assets/{DATASET}/merged?view=checks&checkDetail=caption_coverage")
    layout = Layout(str(project.store), DATASET)
    shots.take("report", f"file://{layout.report_index}", height=1100)
    shots.take("report-shard", f"file://{layout.report_page(shards[1])}", height=1100)


def show_plots(page: Page) -> None:
    """From the table of an asset's metadata to its plots over partitions."""
    page.get_by_text("Plots", exact=True).click()
    page.wait_for_timeout(SETTLE_MS)
    page.get_by_text("feed_wait_s", exact=True).first.evaluate("e => e.scrollIntoView({block: 'start'})")


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

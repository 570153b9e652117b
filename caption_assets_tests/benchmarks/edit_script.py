"""The edit script: changes of a small collection's config and source, each followed by a run; the endpoint counts the requests.

`python -m caption_assets_tests.benchmarks.edit_script`: prints for each change how many requests it cost and how many it had to,
canaries apart. A run here is what `caption-assets run` does to shards that are missing or out of date, without Dagster.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from caption_assets.config import Config
from caption_assets.core.captioning import caption_shard, count_pending
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.engines import open_engine
from caption_assets_tests.benchmarks import collection, shard_run
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.stubs.openai_server import StubServer

QUICK = ()
PICTURES = 10
CAPTION = {"name": "caption", "text": "Describe the picture in one sentence."}
TAGS = {"name": "tags", "text": "Give five tags."}
LINE = {"name": "line", "text": "A headline for: {output.caption}", "image": False}
GRID = {"rows": 2, "cols": 2, "cell_size": 32, "gap": 2, "label_font_size": 8}


@dataclass
class Edited:
    """A collection under a config that changes. grids: requests that all of a shard's grids take."""

    root: Path
    stub: StubServer
    options: dict[str, Any] = field(default_factory=lambda: {"prompts": [CAPTION], "grid": GRID})
    shards: int = 0

    @property
    def settings(self) -> Config:
        return collection.config(self.root, self.stub.url, **self.options)

    @property
    def grids(self) -> int:
        return self.shards * -(-PICTURES // 4)

    @property
    def records(self) -> int:
        return self.shards * PICTURES

    def add_shard(self) -> None:
        path = self.root / "source" / f"shard-{self.shards:02d}.tar"
        collection.write_tar(path, collection.tiny(PICTURES, self.shards * PICTURES))
        self.shards += 1

    def run(self, only_reasons: frozenset[str] | None = None) -> None:
        """Asks what is owed and merges. With reasons: a retry, as recaptions alone does it."""
        settings, run_id, objects = self.settings, uuid.uuid4().hex, ObjectStore()
        layout, engine = Layout(settings.store, "photos"), open_engine(settings.engine)
        for shard in shard_run.shards(settings):
            if not objects.exists(layout.mapping(shard)):
                collection.prepare(settings, shard)
            job = collection.job(settings, shard, run_id)
            spec, layout = job.spec, job.layout
            if (
                only_reasons is None
                and count_pending(objects, layout, spec, shard, job.recipes, job.manifest, job.mapping).requests
            ):
                caption_shard(job, engine)
                caption_shard(job, engine, stage="recaptions")
            elif only_reasons is not None:
                caption_shard(job, engine, stage="recaptions", extra_round=True, only_reasons=only_reasons)
            shard_run.merge(settings, shard, run_id)
        engine.close()

    def refused(self) -> int:
        """Records whose caption a filter refuses."""
        files = (self.root / "store" / "photos" / "merged").glob("*.parquet")
        reasons = [reason for file in files for reason in pq.read_table(file)["caption_reason"].to_pylist()]
        failed = (self.root / "store" / "photos" / "failed").glob("*.parquet")
        return sum(reason is not None for reason in reasons) + sum(pq.read_metadata(file).num_rows for file in failed)


def edits(work: Edited) -> Iterator[tuple[str, int, int]]:
    """(change, requests it took, the least possible)."""

    def after(change: str, least: int, **run: Any) -> tuple[str, int, int]:
        before = work.stub.counts().total()
        work.run(**run)
        return change, work.stub.counts().total() - before, least

    options = work.options
    work.add_shard()
    work.add_shard()
    yield after("a new collection", work.grids)
    yield after("nothing", 0)
    options["prompts"] = [CAPTION, TAGS]
    yield after("a new prompt", work.grids)
    options["prompts"] = [CAPTION, TAGS, LINE]
    yield after("a new text-only stage", work.records)
    tags = {**TAGS, "sampling": {"temperature": 0.2}}
    options["prompts"] = [CAPTION, tags, LINE]
    yield after("sampling of one prompt", work.grids)
    line = {**LINE, "text": "Another headline for: {output.caption}"}
    options["prompts"] = [CAPTION, tags, line]
    yield after("the text of one stage", work.records)
    work.add_shard()
    yield after("a new shard", 2 * work.grids // 3 + PICTURES)
    caption = {**CAPTION, "version": 2}
    options["prompts"] = [caption, tags, line]
    yield after("a new version of a prompt that another uses", work.grids + work.records)
    options["prompts"] = [CAPTION, tags, line]
    yield after("back to the old version", 0)
    options["prompts"] = [{**CAPTION, "filters": {"min_chars": 60}}, tags, line]
    yield after("a filter switched on", 0)
    refused = work.refused()
    assert 0 < refused < work.records / 2, refused
    # The lines are about the captions: where a retry says something else, the line is asked again, too.
    yield after("that reason retried", 2 * refused, only_reasons=frozenset({"too_short"}))
    options["prompts"] = [CAPTION, tags, line]
    yield after("the filter switched off", 0)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, StubServer() as stub:
        wrong = asked = needed = 0
        print(f"{'change':45}{'requests':>9}{'least':>7}")
        for change, took, least in edits(Edited(Path(folder), stub)):
            print(f"{change:45}{took:9}{least:7}")
            wrong, asked, needed = wrong + (took != least), asked + took, needed + least
        print(f"canaries, apart: {stub.counts(canary=True).total()}")
        report(Figure("requests for twelve edits", "", asked, floor=needed, floor_way="the least possible", of_floor=1))
        report(Figure("edits that cost more or less than they had to", "", wrong, at_most=0))
    sys.exit(f"{wrong} changes cost more or less than they had to" if wrong else 0)


if __name__ == "__main__":
    main()

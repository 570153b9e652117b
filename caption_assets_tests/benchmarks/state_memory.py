"""What it takes to know what a shard still owes: time and peak memory over a manifest of many records with all their replies.

`python -m caption_assets_tests.benchmarks.state_memory [records …]`, 20,000 and 1,000,000 if not said; each in a process of its
own: two outputs, the second a text-only stage over the first, so that every text is parsed, kept and rendered.
"""

from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from caption_assets.core.captioning import count_pending
from caption_assets.core.columns import MANIFEST, MAPPING, Column
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.prompts import prompt_sha256
from caption_assets.core.replies.chunks import ChunkWriter, ReplyRow
from caption_assets.core.tables import RecordStream, arrow_schema, batches_of, write_parquet
from caption_assets_tests.benchmarks import collection
from caption_assets_tests.benchmarks.reporting import Figure, report

QUICK = (20_000, 200_000)
SHARD = "shard"


def _name(number: int) -> str:
    return f"a/long/path/shard.tar#picture-{number:09d}.jpg"


def _record(number: int) -> dict[str, Any]:
    said = json.dumps({"text": "x" * 500})
    return {"record_id": _name(number), "uri": "u", "source_uri": "s", "source_index": number + 1, "record_json": said}


def _shown(number: int) -> dict[str, Any]:
    sha = hashlib.sha256(b"%d" % number).hexdigest()
    return {"record_id": _name(number), "width": 832, "height": 624, "sha256": sha, "file_bytes": 1000}


def _stream(records: int, columns: Sequence[Column], row: Callable[[int], dict[str, Any]]) -> RecordStream:
    schema = arrow_schema(columns)
    return RecordStream(schema, batches_of(map(row, range(records)), schema))


def make(root: Path, records: int) -> None:
    settings, objects = collection.config(root, "http://127.0.0.1:9/v1", **_options()), ObjectStore()
    layout = Layout(settings.store, "photos")
    write_parquet(objects, layout.manifest(SHARD), _stream(records, MANIFEST, _record))
    write_parquet(objects, layout.mapping(SHARD), _stream(records, MAPPING, _shown))
    job = collection.job(settings, SHARD)
    writer = ChunkWriter(objects, layout, SHARD, "run", "run")
    sha, recipe = prompt_sha256(job.spec.prompts[0].text), job.recipes["caption"]
    for start in range(0, records, 100):
        writer.write("caption", recipe, [_reply(number, sha, recipe) for number in range(start, start + 100)])


def _options() -> dict[str, Any]:
    prompts = [{"text": "Describe the picture."}, {"name": "line", "text": "About {output.caption}", "image": False}]
    return {"grid": {"rows": 1, "cols": 1}, "prompts": prompts}


def _reply(n: int, sha: str, recipe: str) -> ReplyRow:
    text = f"A photograph of number {n} that shows something in the middle of a wide and empty field, in the evening light."
    return ReplyRow(
        f"{n:032x}", None, [1], [_name(n)], [sha], "caption", recipe, 1, text, "stop", None,
        10, 5, 1.0, "http://e/v1", "stub", None, 1.7e9 + n, "run",
    )  # fmt: skip


def measure(root: Path, records: int) -> None:
    job = collection.job(collection.config(root, "http://127.0.0.1:9/v1", **_options()), SHARD)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    started, used = time.monotonic(), time.process_time()
    owed = count_pending(job.objects, job.layout, job.spec, SHARD, job.recipes, job.manifest, job.mapping)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert owed.requests == records, owed
    print(
        f"{records:10,}{time.monotonic() - started:9.1f} s{time.process_time() - used:9.1f} s"
        f"{before:9.0f} MB{peak:9.0f} MB{(peak - before) * 1e6 / records:9.0f} B a record"
    )
    report(Figure(f"what {records:,} records owe: memory", "MB", peak - before, note="over the process without it"))
    report(Figure(f"what {records:,} records owe: time", "CPU s", time.process_time() - used))


def main(*records: int) -> None:
    print(f"{'records':>10}{'time':>11}{'CPU':>11}{'before':>12}{'peak':>12}")
    for count in records or (20_000, 1_000_000):
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), count)
            subprocess.run([sys.executable, "-m", __spec__.name, "measure", folder, str(count)], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main(*map(int, sys.argv[1:]))

"""What came of the demo: shards, some captions beside the truth, where the results lie.

    python -m caption_assets.demo.show FOLDER

Reads merged and failed of the store only. Exit 1 when a record is missing, a reason is not the expected one or more than 2 % of
the captions are untrue.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from caption_assets.config import Config, DatasetConfig
from caption_assets.configerrors import ConfigError
from caption_assets.configfile import DEFAULT_PATH, load_config
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.tables import table
from caption_assets.demo.collection import TRUTH, Truth

SHOWN = 4
"""Captions shown per dataset."""
ENOUGH = 0.98


@dataclass(frozen=True, slots=True)
class Result:
    """One record as the store has it: its first output's caption, or the reason why there is none."""

    shard: str
    record_id: str
    caption: str | None
    reason: str | None


def results(objects: ObjectStore, config: Config, spec: DatasetConfig) -> Iterator[Result]:
    """All records of the dataset's published shards, captioned ones first within a shard."""
    layout, output = Layout(config.store, spec.name), spec.prompts[0].name
    for info in objects.list(f"{layout.root}/merged/"):
        shard = Path(info.uri).stem
        for uri, column in ((layout.merged(shard), output), (layout.failed(shard), "reason")):
            for batch in table(objects, uri).batches(objects, ["record_id", column]):
                for row in batch.to_pylist():
                    said = row[column]
                    yield Result(shard, row["record_id"], *((said, None) if column == output else (None, said)))


def show(folder: Path) -> int:
    """Prints everything; the exit code."""
    config = load_config(folder / DEFAULT_PATH)
    lines = (folder / TRUTH).read_text(encoding="utf-8").splitlines()
    truth = {(t.dataset, t.record_id): t for t in (Truth(**json.loads(line)) for line in lines)}
    objects, right = ObjectStore(config.s3), {"captions": 0, "reasons": 0}
    for spec in config.datasets:
        found = list(results(objects, config, spec))
        for shard, records in itertools.groupby(found, lambda r: r.shard):
            captioned = [r.caption is not None for r in records]
            print(f"{spec.name}/{shard}: {sum(captioned)} captioned, {len(captioned) - sum(captioned)} failed")
        for number, r in enumerate(found):
            wanted = truth[spec.name, r.record_id]
            good = (r.caption, r.reason) == (wanted.caption, wanted.reason)
            right["captions" if wanted.caption else "reasons"] += good
            if number % (len(found) // SHOWN + 1) == 0 or r.reason or not good:
                print(f"    {r.record_id}: {_printable(r)}{'' if good else f' (expected: {wanted.caption or wanted.reason})'}")
    captions = sum(t.caption is not None for t in truth.values())
    reasons = len(truth) - captions
    print(f"\ntrue captions: {right['captions']} of {captions}; right reasons: {right['reasons']} of {reasons}")
    _say_where(folder, config)
    return 0 if right["captions"] >= ENOUGH * captions and right["reasons"] == reasons else 1


def _printable(result: Result) -> str:
    """What a model says is data: no control codes reach the terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in result.caption or f"[{result.reason}]")


def _say_where(folder: Path, config: Config) -> None:
    """Where to go on from here."""
    print("results, in each dataset's folder: merged/*.parquet, failed/*.parquet and captions.duckdb (all of them together)")
    for spec in config.datasets:
        print(f"    {Layout(config.store, spec.name).root}")
    setting = f"CAPTION_ASSETS_CONFIG={shlex.quote(str(folder / DEFAULT_PATH))}"
    home = f"DAGSTER_HOME={shlex.quote(str(folder / '.dagster_home'))}"
    dagster = shlex.quote(str(Path(sys.executable).with_name("dagster")))
    print(f"the UI: {setting} {home} {dagster} dev -m caption_assets.definitions")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m caption_assets.demo.show", description="show what came of the demo")
    parser.add_argument("folder", help="the folder that caption_assets.demo.collection wrote")
    try:
        return show(Path(parser.parse_args(arguments).folder).absolute())
    except (ConfigError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

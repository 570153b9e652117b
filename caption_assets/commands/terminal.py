"""What the commands print: tables, lines per shard. Text of models and records is made safe here."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from caption_assets.commands.faults import in_words
from caption_assets.display import plain

if TYPE_CHECKING:
    import dagster as dg
    from dagster._core.execution.plan.objects import StepFailureData

    from caption_assets.partitions import Dataset

FIGURE = re.compile(r"[\d.,]+|[-?]")
"""What stands to the right in a table."""


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A plain table, figures to the right. On a terminal too narrow for a table of figures each row is a paragraph."""
    shown = [["-" if cell is None else plain(str(cell)) for cell in row] for row in rows]
    columns = list(zip(headers, *shown, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [bool(shown) and all(FIGURE.fullmatch(cell) for cell in column[1:]) for column in columns]
    wide = shutil.get_terminal_size().columns
    if any(right) and sys.stdout.isatty() and sum(widths) + 2 * len(widths) - 2 > wide:
        for name, *cells in shown:
            told = [f"{header} {cell}" for header, cell in zip(headers[1:], cells, strict=True) if cell not in ("0", "-")]
            said = f"{name}: {', '.join(told) or 'nothing'}"
            print(textwrap.fill(said, max(wide, 20), subsequent_indent="  ", break_on_hyphens=False))
        return
    for row in ([*headers], *shown):
        cells = [cell.rjust(w) if figures else cell.ljust(w) for cell, w, figures in zip(row, widths, right, strict=True)]
        print("  ".join(cells).rstrip())


def shard_line(
    instance: dg.DagsterInstance, ds: Dataset, shard: str, number: int, of: int, left_s: float | None, done_by: str | None
) -> None:
    """One line for a finished shard, from its materialization. done_by: somebody else who finished it meanwhile."""
    records = instance.fetch_materializations(_merged(ds, shard), limit=1).records
    event = records[0].asset_materialization if records else None
    figures = {key: value.value for key, value in event.metadata.items()} if event else {}
    captioned, failed = figures.get("captioned"), figures.get("failed")
    eta = f", about {duration(left_s)} left" if number < of and left_s is not None else ""
    by = f" by {plain(done_by)}" if done_by else ""
    print(f"[{number}/{of}] {ds.name}/{shard}: {captioned} captioned, {failed} failed{by}{eta}", flush=True)


def _merged(ds: Dataset, shard: str) -> dg.AssetRecordsFilter:
    import dagster

    return dagster.AssetRecordsFilter(asset_key=ds.key("merged"), asset_partitions=[shard])


def step_failures(instance: dg.DagsterInstance, run_id: str | None) -> list[StepFailureData]:
    """What the failed steps of a run left, in order."""
    import dagster

    if run_id is None:
        return []
    events = [entry.dagster_event for entry in instance.all_logs(run_id, of_type=dagster.DagsterEventType.STEP_FAILURE)]
    return [event.step_failure_data for event in events if event is not None]


def failure(instance: dg.DagsterInstance, run_id: str | None, what: str) -> bool:
    """What failed and why, on stderr. True: other shards would fail alike (wrong settings, a full disk)."""
    from caption_assets.assets.shard_run import WRONG_SETTINGS

    said, alike = "see the run in the UI" if run_id else "its process has ended; run again", False
    for failed in step_failures(instance, run_id):
        if failed.user_failure_data is not None and failed.user_failure_data.description:
            said, alike = failed.user_failure_data.description, WRONG_SETTINGS in (failed.user_failure_data.metadata or {})
        elif failed.error is not None:
            cause = failed.error.cause or failed.error
            said, alike = in_words(cause.message), cause.cls_name == "MachineFault"
    print(f"{what}: failed (run {(run_id or '?')[:8]}): {plain(said)}", file=sys.stderr, flush=True)
    return alike


def problems(ds: Dataset, lines: Sequence[str]) -> None:
    """What somebody should look at, on stderr."""
    for line in lines:
        print(f"{ds.name}: {plain(line)}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Seconds for people, to a twentieth: 42 s, 3.5 min, 35 min, 2.5 h, 3.2 days."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min" if seconds < 600 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.1f} days"

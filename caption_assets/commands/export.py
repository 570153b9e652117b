"""`caption-assets export`: captions in the form that the next tool opens, and a check of what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from caption_assets.commands.workplace import DONE, FAILED, UsageError, Workplace

if TYPE_CHECKING:
    from caption_assets.core.exports.job import Options
    from caption_assets.core.exports.selection import Selection


def export(place: Workplace, name: str, format: str, to: str, selection: Selection, options: Options) -> int:
    """Brings the export in `to` up to date with every merged shard."""
    from caption_assets.core.exports.exporting import export as write
    from caption_assets.core.exports.selection import ExportError
    from caption_assets.core.exports.tarwriting import WorkerFailed
    from caption_assets.core.objectstore import ObjectError
    from caption_assets.core.plan.plans import PlanError, load_plan

    (ds,) = place.chosen([name])

    def say(shard: str, entry: dict[str, Any]) -> None:
        print(
            f"{ds.name}/{shard}: {entry['records']:,} records, {entry['files']:,} files, {entry['bytes'] / 1e6:,.1f} MB",
            flush=True,
        )

    try:
        shards = load_plan(place.objects, ds.layout).shards
        result = write(place.objects, ds.layout, ds.spec, shards, format, to, selection, options, say)
    except ExportError as error:
        raise UsageError(str(error)) from None
    except (ObjectError, PlanError, WorkerFailed) as error:
        print(f"{ds.name}: {error}")
        return FAILED
    print(f"{result.folder}: {result.records:,} records in {result.files:,} files, {result.bytes / 1e6:,.1f} MB")
    if result.kept:
        print(f"{len(result.kept)} shards were there already and are up to date")
    if result.not_merged:
        print(f"{len(result.not_merged)} shards are not merged yet, such as {result.not_merged[0]}")
    for example in result.left_out_examples:
        print(f"left out: {example}")
    return DONE


def verify(place: Workplace, name: str, to: str) -> int:
    """Reads an export back; names every file that is not what was written."""
    from caption_assets.core.exports.exporting import verify as check
    from caption_assets.core.exports.selection import ExportError

    (ds,) = place.chosen([name])
    try:
        summary, problems = check(place.objects, to, ds.name)
    except ExportError as error:
        raise UsageError(str(error)) from None
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{to}: {summary['records']:,} records in {summary['files']:,} files are what was written")
    return FAILED if problems else DONE

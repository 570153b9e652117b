"""The `caption-assets` command: thin, over the same Dagster instance that the UI shows.

Exit codes: 0 done, 1 something failed, 2 config or usage, 3 batches open or another run holds the lease, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from caption_assets import __version__
from caption_assets.commands.helptexts import epilog
from caption_assets.commands.workplace import FAILED, INTERRUPTED, USAGE, UsageError, workplace
from caption_assets.config import EXPORT_FORMATS
from caption_assets.configerrors import ConfigError
from caption_assets.core.hiding import hidden


@click.group(epilog=epilog(), context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 130})
@click.option("--config", metavar="FILE", help="Default: $CAPTION_ASSETS_CONFIG, else ./caption_assets.yaml")
@click.version_option(__version__)
@click.pass_context
def cli(context: click.Context, config: str | None) -> None:
    """Captions for image collections of any size."""
    context.obj = config


shards_option = click.option("--shards", metavar="A..B|K,K", help="A range in plan order, inclusive, or a list of keys.")


def _looked_into(code: int) -> int:
    """The exit code; after a failure it is said who knows more."""
    if code == FAILED:
        click.echo("`caption-assets doctor` looks for what is in the way: source, store, engine, disks", err=True)
    return code


@cli.command(epilog=epilog("init"))
@click.option("--postgres", is_flag=True, help="Keep Dagster's records in PostgreSQL, at $DAGSTER_POSTGRES_URL.")
@click.option(
    "--logs-to", metavar="S3", help="Keep what steps print at s3://bucket/prefix. Default: {store}/_logs of a store in S3."
)
@click.pass_obj
def init(config: str | None, postgres: bool, logs_to: str | None) -> int:
    """Write an example config where there is none and prepare the Dagster instance."""
    from caption_assets.commands.init import init as command

    return command(config, postgres, logs_to)


@cli.command(epilog=epilog("doctor"))
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--port", type=click.IntRange(1, 65535), default=3000, show_default=True, help="Of Dagster's web server.")
@click.pass_obj
def doctor(config: str | None, as_json: bool, port: int) -> int:
    """Look for what would keep a run from working, and say what to do. Starts nothing, changes nothing."""
    from caption_assets.commands.doctor import doctor as command

    return command(config, as_json, port)


@cli.command(epilog=epilog("plan"))
@click.argument("dataset")
@click.option("--accept-changed", metavar="FILE", help="Plan this changed source file anew, under a new key.")
@click.pass_obj
def plan(config: str | None, dataset: str, accept_changed: str | None) -> int:
    """List the source and cut what is new into shards."""
    from caption_assets.commands.plan import plan as command

    with workplace(config) as place:
        return _looked_into(command(place, dataset, accept_changed))


@cli.command(epilog=epilog("run"))
@click.argument("datasets", nargs=-1)
@shards_option
@click.option("--dry-run", is_flag=True, help="Everything but asking the model: counts, tokens, bytes, hours.")
@click.pass_obj
def run(config: str | None, datasets: tuple[str, ...], shards: str | None, dry_run: bool) -> int:
    """Caption what is missing or out of date, one Dagster run per shard; goes on where an earlier run stopped."""
    from caption_assets.commands.run import run as command

    with workplace(config) as place:
        return _looked_into(command(place, datasets, shards, dry_run))


@cli.command(epilog=epilog("retry"))
@click.argument("dataset")
@click.option("--reason", "reasons", multiple=True, help="Ask again what failed for this reason; all retryable ones without it.")
@shards_option
@click.pass_obj
def retry(config: str | None, dataset: str, reasons: tuple[str, ...], shards: str | None) -> int:
    """Ask once more for records that failed."""
    from caption_assets.commands.run import retry as command

    with workplace(config) as place:
        return _looked_into(command(place, dataset, reasons, shards))


@cli.command(epilog=epilog("status"))
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--watch", is_flag=True, help="Again every few seconds, with rates and ETA.")
@click.pass_obj
def status(config: str | None, as_json: bool, watch: bool) -> int:
    """What is done, what is at work and what failed, over all datasets."""
    from caption_assets.commands.status import status as command
    from caption_assets.commands.watching import watch as watching

    with workplace(config, say_home=not as_json) as place:
        return watching(place) if watch else command(place, as_json)


@cli.command(epilog=epilog("reconcile"))
@click.argument("datasets", nargs=-1)
@click.pass_obj
def reconcile(config: str | None, datasets: tuple[str, ...]) -> int:
    """Make Dagster's status equal to what the store holds."""
    from caption_assets.commands.reconcile import reconcile as command

    with workplace(config) as place:
        return command(place, datasets)


@cli.command(epilog=epilog("clean"))
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.pass_obj
def clean(config: str | None, dry_run: bool) -> int:
    """Remove grids that are merged (keep: until_merged), replies of superseded recipes and dead leases."""
    from caption_assets.commands.clean import clean as command

    with workplace(config) as place:
        return command(place, dry_run)


@cli.command(epilog=epilog("export"))
@click.argument("dataset")
@click.option("--format", "format_", type=click.Choice(EXPORT_FORMATS), help="What the next tool opens.")
@click.option("--to", metavar="DIR", required=True, help="A local folder or s3://bucket/prefix.")
@click.option("--output", help="This output only.")
@click.option("--recipe", help="Only what was said under this recipe.")
@click.option("--without-reason", multiple=True, metavar="R", help="No record that has this reason for any output; * for any.")
@click.option("--min-chars", type=int, default=0, help="Shortest text.")
@click.option("--min-side", type=int, default=0, help="Pixels of the shorter side.")
@click.option("--unique", is_flag=True, help="No second record of the same picture.")
@click.option("--csv-safe", is_flag=True, help="Texts that a spreadsheet would take for a formula begin with an apostrophe.")
@click.option("--pictures", is_flag=True, help="txt and json: beside copies of the pictures, not in a mirror of their folders.")
@click.option("--verify", is_flag=True, help="Read the export in DIR back and compare it with what was written.")
@click.pass_obj
def export(
    config: str | None, dataset: str, format_: str | None, to: str, verify: bool, csv_safe: bool, pictures: bool, **chosen: Any
) -> int:
    """Write the captions of a dataset as another format; again to bring new shards."""
    from caption_assets.commands.export import export as command
    from caption_assets.commands.export import verify as check
    from caption_assets.core.exports.job import Options
    from caption_assets.core.exports.selection import Selection

    with workplace(config) as place:
        if verify:
            return check(place, dataset, to)
        if format_ is None:
            raise UsageError(f"--format is missing; there are {', '.join(EXPORT_FORMATS)}")
        selection = Selection(without_reasons=chosen.pop("without_reason"), **chosen)
        return command(place, dataset, format_, to, selection, Options(csv_safe=csv_safe, pictures=pictures))


@cli.group(epilog=epilog("engine"))
def engine() -> None:
    """The vLLM servers of this machine."""


@engine.command("status", epilog=epilog("engine status"))
def engine_status() -> int:
    """Which run, and since when they are idle."""
    from caption_assets.commands.engine import status as command

    return command()


@engine.command("stop", epilog=epilog("engine stop"))
def engine_stop() -> int:
    """Stop them now; they also stop by themselves after engine.idle_stop_s."""
    from caption_assets.commands.engine import stop as command

    return command()


def main(arguments: list[str] | None = None) -> Any:
    """Runs the command and ends the process with its exit code; errors of the user's are one message, never a traceback."""
    try:
        sys.exit(cli.main(arguments, prog_name="caption-assets", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(USAGE)
    except (ConfigError, UsageError) as error:
        click.echo(f"caption-assets: {hidden(str(error))}", err=True)
        sys.exit(USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; `caption-assets run` goes on where this stopped", err=True)
        sys.exit(INTERRUPTED)
    except Exception as error:
        from caption_assets.commands.faults import told

        if (said := told(error)) is None:
            raise
        click.echo(f"caption-assets: {said}", err=True)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()

"""`caption-assets doctor`: what would keep a run from working, with the remedy. It starts nothing and leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from caption_assets.commands import terminal
from caption_assets.commands.faults import told
from caption_assets.commands.workplace import DONE, FAILED, USAGE, read_config
from caption_assets.config import Config
from caption_assets.configerrors import ConfigError
from caption_assets.configfile import config_path
from caption_assets.core.report.text import plural
from caption_assets.diagnosis.findings import Finding, Probe, redacted, run_probes, size
from caption_assets.display import plain
from caption_assets.instance import dagster_home
from caption_assets.postgresql import connected, database_url

RECORDS_BYTES = 50_000_000
"""What Dagster's own records want to have free."""
FIRST_LIMIT_S, SECOND_LIMIT_S = 40.0, 20.0


def doctor(config: str | None, as_json: bool, port: int) -> int:
    """Looks at everything and says what it found; exit 1 where there is a problem, 2 where the config cannot be used."""
    try:
        file, loaded = read_config(config)
        home, named = dagster_home(file)
    except ConfigError as error:
        said = redacted(str(error))
        if not as_json:
            raise ConfigError(said) from None
        _say([Finding("problem", "config", str(config_path(config)), said, "mend the config")], as_json)
        return USAGE
    found, stuck = examine(loaded, home, named, port)
    several = f"{plural(len(loaded.datasets), 'dataset')}: {', '.join(spec.name for spec in loaded.datasets)}"
    findings = [Finding("ok", "config", str(file), several), *found]
    _say(findings, as_json)
    code = FAILED if any(finding.state == "problem" for finding in findings) else DONE
    if stuck:  # a thread that still waits for somebody must not keep the user waiting
        sys.stdout.flush()
        os._exit(code)
    return code


def examine(config: Config, home: Path, named: bool, port: int) -> tuple[list[Finding], bool]:
    """All findings, and whether a probe is still at it."""
    from caption_assets.diagnosis import disk, engines, machine, sources, stores
    from caption_assets.diagnosis.glimpse import Glimpse

    seen: dict[str, Glimpse] = {}
    first = [Probe("instance", str(home), partial(instance, home, named), "look at what else uses it")]
    for bucket in sources.bucket_uses(config):
        look = partial(sources.credentials_of, config, bucket)
        first.append(Probe("credentials", f"s3://{bucket}", look, "look at s3.profile, s3.role_arn and the network"))
    for spec in config.datasets:
        first.append(Probe("source", spec.name, partial(sources.source, config, spec, seen), "look at the network and the disk"))
    first.append(Probe("store", config.store, partial(stores.store, config), "look at the network and the disk"))
    for engine, specs in engines.engine_uses(config):
        remote = engines.remote(engine)
        look_at_engine = partial(engines.endpoints, engine, specs) if remote else partial(engines.vllm, engine)
        first.append(Probe("engine", engine.model, look_at_engine, "look whether the endpoint or the hub can be reached"))
    first.append(Probe("port", str(port), partial(machine.port, port), ""))
    second = [
        Probe("disk", config.store, partial(disk.disks, config, seen), "look at the disk"),
        Probe("library", "", partial(machine.libraries, config, seen), ""),
    ]
    names = [key for engine, _ in engines.engine_uses(config) if (key := engine.api_key_env)]
    (early, stuck), (late, still) = run_probes(first, FIRST_LIMIT_S, names), run_probes(second, SECOND_LIMIT_S, names)
    return [*early, *late], stuck or still


def instance(home: Path, named: bool) -> Iterator[Finding]:
    """Dagster's records: where they lie, and whether they can be opened. Nothing is made there."""
    from sqlalchemy.exc import DBAPIError

    from caption_assets.sqlitelocks import locked_files

    if not named:
        yield Finding(
            "warning", "DAGSTER_HOME", str(home), "is not set: the commands use this folder, plain Dagster knows nothing of it",
            f"export DAGSTER_HOME={home}",
        )  # fmt: skip
    if not (home / ".prepared").exists():
        above = next(folder for folder in (home, *home.parents) if folder.exists())
        if not os.access(above, os.W_OK):
            yield Finding("problem", "instance", str(home), f"{above} cannot be written to", "set DAGSTER_HOME to another folder")
        else:
            yield Finding("ok", "instance", str(home), "not prepared yet; `caption-assets init` or `run` does it")
        return
    if not os.access(home, os.W_OK):
        yield Finding("problem", "instance", str(home), "cannot be written to", "give this user the right, or move it")
        return
    if locked := locked_files(home):
        names = ", ".join(map(str, locked))
        yield Finding("problem", "instance", str(home), f"locked by another process: {names}", "end that process")
        return
    if (free := shutil.disk_usage(home).free) < RECORDS_BYTES:
        yield Finding("problem", "instance", str(home), f"its disk has {size(free)} left", "make room, or move DAGSTER_HOME")
        return
    from dagster import DagsterInstance

    try:
        if url := database_url(home):
            with connected(url):
                pass
    except (ConfigError, DBAPIError) as error:
        yield Finding("problem", "instance", str(home), told(error) or str(error))
        return
    with DagsterInstance.from_config(str(home)) as opened:
        opened.get_runs(limit=1)
        kind = type(opened.run_storage).__name__.removesuffix("RunStorage")
    yield Finding("ok", "instance", str(home), f"opened, records in {kind}")


def _say(findings: Sequence[Finding], as_json: bool) -> None:
    if as_json:
        states = [finding.state for finding in findings]
        worst = next(state for state in ("problem", "warning", "ok") if state in states)
        print(json.dumps({"state": worst, "findings": [asdict(finding) for finding in findings]}))
        return
    terminal.table(("state", "check", "of", "found"), [(f.state, f.check, f.of, f.said) for f in findings])
    bad = [finding for finding in findings if finding.state != "ok"]
    if bad:
        print("\nWhat to do:")
    for finding in bad:
        print(plain(f"  {finding.check} ({finding.of}): {finding.remedy or finding.said}"))

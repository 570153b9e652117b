"""What every command works with: the config, the datasets, the object store and the Dagster instance."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from caption_assets.config import Config
from caption_assets.configerrors import ConfigError
from caption_assets.configfile import CONFIG_ENV, config_path, load_config
from caption_assets.instance import dagster_home, open_instance, step_logs_yaml

if TYPE_CHECKING:
    import dagster as dg

    from caption_assets.core.objectstore import ObjectStore
    from caption_assets.core.plan.plans import Plan
    from caption_assets.partitions import Dataset

DONE, FAILED, USAGE, BUSY, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes: done; something failed; config or usage; batches open or another run holds the lease; interrupted."""


class UsageError(Exception):
    """The command cannot be carried out as given; exit code 2."""


@dataclass
class Workplace:
    config_file: Path
    config: Config
    datasets: list[Dataset]
    objects: ObjectStore
    instance: dg.DagsterInstance

    def chosen(self, names: Sequence[str]) -> list[Dataset]:
        """The datasets of these names, all for none."""
        by_name = {ds.name: ds for ds in self.datasets}
        for name in names:
            if name not in by_name:
                self.config.dataset(name)  # raises and says which there are
        return [by_name[name] for name in names] if names else self.datasets


def read_config(config: str | None) -> tuple[Path, Config]:
    """The config's file and what it says; raises ConfigError where there is nothing to work on."""
    file = config_path(config)
    loaded = load_config(file if config or file.exists() else None)
    if not loaded.datasets:
        what = "has no datasets" if file.exists() else "no such config file"
        raise ConfigError(f"{file}: {what}; `caption-assets init` writes an example to begin with")
    return file, loaded


@contextmanager
def workplace(config: str | None, say_home: bool = True) -> Iterator[Workplace]:
    """Opens everything; raises ConfigError where there is nothing to work on. Runs started here find the same config."""
    file, loaded = read_config(config)
    os.environ[CONFIG_ENV] = str(file)
    home, named = dagster_home(file)
    if say_home and not named:
        print(f"DAGSTER_HOME is not set: using {home} (for `dagster dev`: export DAGSTER_HOME={home})")
    os.chdir(file.parent)
    with open_instance(home, step_logs_yaml(loaded)) as instance:
        from caption_assets.partitions import Dataset
        from caption_assets.resources.store import StoreResource

        datasets = [Dataset(loaded, spec) for spec in loaded.datasets]
        store = StoreResource(s3_settings=loaded.s3.model_dump_json())
        yield Workplace(file, loaded, datasets, store.objects, instance)


def choose_shards(plan: Plan, chosen: str | None) -> list[str]:
    """Shards of the plan by `A..B` (plan order, inclusive) or `K,K`; all for None."""
    shards = list(plan.shards)
    if not chosen:
        return shards
    if ".." in chosen:
        first, last = chosen.split("..", 1)
        for key in (first, last):
            if key and key not in plan:
                raise UsageError(f"--shards {chosen}: {key!r} is not in the plan")
        start = shards.index(first) if first else 0
        end = shards.index(last) if last else len(shards) - 1
        if start > end:
            raise UsageError(f"--shards {chosen}: {first!r} comes after {last!r} in the plan")
        return shards[start : end + 1]
    wanted = dict.fromkeys(key.strip() for key in chosen.split(",") if key.strip())
    unknown = [key for key in wanted if key not in plan]
    if unknown:
        raise UsageError(f"--shards {chosen}: not in the plan: {', '.join(unknown)}")
    return [key for key in shards if key in wanted]

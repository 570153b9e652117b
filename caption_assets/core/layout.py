"""Where everything lies in the store. Nothing else builds these paths."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

SHARD_KEY = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")


@dataclass(frozen=True)
class Layout:
    """The paths of one dataset: `{store}/{dataset}/…`; store is a local path or `s3://bucket/prefix`."""

    store: str
    dataset: str

    @property
    def root(self) -> str:
        return f"{self.store.rstrip('/')}/{self.dataset}"

    @property
    def model(self) -> str:
        return f"{self.root}/model.json"

    @property
    def plan_folder(self) -> str:
        return f"{self.root}/plan/"

    def plan(self, generation: int) -> str:
        return f"{self.plan_folder}gen-{generation:05d}.parquet"

    def manifest(self, shard: str) -> str:
        return f"{self.root}/manifest/{_checked(shard)}.parquet"

    def grids_folder(self, shard: str) -> str:
        return f"{self.root}/concat_grids/{_checked(shard)}/"

    def grid_tar(self, shard: str, number: int) -> str:
        return f"{self.grids_folder(shard)}grids-{number:05d}.tar"

    def mapping(self, shard: str) -> str:
        return f"{self.grids_folder(shard)}mapping.parquet"

    @property
    def all_grids(self) -> str:
        """The folder of every shard's grids."""
        return f"{self.root}/concat_grids/"

    @property
    def all_captions(self) -> str:
        """The folder of every shard's replies."""
        return f"{self.root}/captions/"

    @property
    def all_leases(self) -> str:
        return f"{self.root}/leases/"

    def captions_folder(self, shard: str) -> str:
        return f"{self.root}/captions/{_checked(shard)}/"

    def chunks_folder(self, shard: str, output: str, recipe: str) -> str:
        return f"{self.captions_folder(shard)}{output}/{recipe}/"

    def revoked_folder(self, shard: str) -> str:
        return f"{self.captions_folder(shard)}_revoked/"

    def batches_folder(self, shard: str) -> str:
        return f"{self.captions_folder(shard)}_batches/"

    def merged(self, shard: str) -> str:
        return f"{self.root}/merged/{_checked(shard)}.parquet"

    def failed(self, shard: str) -> str:
        return f"{self.root}/failed/{_checked(shard)}.parquet"

    def lease(self, shard: str) -> str:
        return f"{self.root}/leases/{_checked(shard)}.json"

    @property
    def index(self) -> str:
        return f"{self.root}/captions.duckdb"

    @property
    def exports_folder(self) -> str:
        return f"{self.root}/exports/"

    @property
    def report_folder(self) -> str:
        return f"{self.root}/report/"

    @property
    def report_index(self) -> str:
        return f"{self.report_folder}index.html"

    def report_page(self, shard: str) -> str:
        """A shard may be called index; no key has a dot."""
        return f"{self.report_folder}{_checked(shard)}{'.shard' if shard == 'index' else ''}.html"

    @property
    def report_figures(self) -> str:
        """What the dataset's page is made from: a row per shard that has a page."""
        return f"{self.report_folder}figures.parquet"


def _checked(shard: str) -> str:
    """A shard key is never a path; this is the last line of defence."""
    if not SHARD_KEY.match(shard):
        raise ValueError(f"{shard!r} is no shard key: letters, digits, _ and - only, at most 100")
    return shard


class ChunkNames:
    """Names of the chunks of one step start: `{run_id}-{8 random hex}-{seq:05d}.parquet`; never the same twice."""

    def __init__(self, run_id: str) -> None:
        self.step = f"{run_id}-{secrets.token_hex(4)}"
        self._next = 0

    def next(self) -> str:
        self._next += 1
        return f"{self.step}-{self._next - 1:05d}.parquet"

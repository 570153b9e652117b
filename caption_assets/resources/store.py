"""The store as a Dagster resource: a thin shell around core.objectstore."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import dagster as dg

from caption_assets.config import S3Config

if TYPE_CHECKING:
    from caption_assets.core.objectstore import ObjectStore

_stores: dict[str, ObjectStore] = {}


class StoreResource(dg.ConfigurableResource):
    """Reads sources and writes artefacts, on disk or S3, with the `s3` settings of caption_assets.yaml.

    `root` is its `store`: a run that uses this resource says there that it lives.
    """

    s3_settings: str = "{}"
    root: str = ""

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[StoreResource]:
        from caption_assets.presence import presence

        with presence(context, self.objects, self.root):
            yield self

    @property
    def objects(self) -> ObjectStore:
        """One object store per process and settings, so that rate limits and connections are shared by all steps."""
        from caption_assets.core.objectstore import ObjectStore

        if self.s3_settings not in _stores:
            _stores[self.s3_settings] = ObjectStore(S3Config.model_validate_json(self.s3_settings))
        return _stores[self.s3_settings]

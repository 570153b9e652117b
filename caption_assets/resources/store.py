"""The store as a Dagster resource: a thin shell around core.objectstore."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from caption_assets.config import S3Config

if TYPE_CHECKING:
    from caption_assets.core.objectstore import ObjectStore

_stores: dict[str, ObjectStore] = {}


class StoreResource(dg.ConfigurableResource):
    """Reads sources and writes artefacts, on disk or S3, with the `s3` settings of caption_assets.yaml."""

    s3_settings: str = "{}"

    @property
    def objects(self) -> ObjectStore:
        """One object store per process and settings, so that rate limits and connections are shared by all steps."""
        from caption_assets.core.objectstore import ObjectStore

        if self.s3_settings not in _stores:
            _stores[self.s3_settings] = ObjectStore(S3Config.model_validate_json(self.s3_settings))
        return _stores[self.s3_settings]

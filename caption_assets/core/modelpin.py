"""model.json: the model's resolved revision, pinned at first use so that a hub's new commit does not change a running job."""

from __future__ import annotations

import json

from caption_assets.config import EngineConfig
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectMissing, ObjectStore
from caption_assets.engines.modelfolder import model_folder
from caption_assets.engines.revision import resolve_revision


def pinned_revision(objects: ObjectStore, layout: Layout, engine: EngineConfig) -> str | None:
    """The revision of this dataset's model: a hub's as pinned in the store, else as it is now, and kept there.

    A folder's is a hash of its files and is taken anew each time: other files are another model. Raises EngineDown when a
    hub name cannot be resolved.
    """
    asked, pins = f"{engine.model}@{engine.revision or ''}", _read(objects, layout)
    on_hub = engine.kind != "openai" and model_folder(engine.model) is None
    if on_hub and asked in pins:
        return pins[asked]
    revision = resolve_revision(engine)
    if asked not in pins or pins[asked] != revision:
        objects.put(layout.model, json.dumps({"revisions": {**pins, asked: revision}}, indent=1).encode())
    return revision


def as_pinned(engine: EngineConfig, revision: str | None) -> EngineConfig:
    """The engine that serves the pinned revision; folders and endpoints that run already serve what they have."""
    if revision is None or engine.kind == "openai" or model_folder(engine.model) is not None:
        return engine
    return engine.model_copy(update={"revision": revision})


def _read(objects: ObjectStore, layout: Layout) -> dict[str, str | None]:
    try:
        return dict(json.loads(objects.read(layout.model))["revisions"])
    except ObjectMissing:
        return {}

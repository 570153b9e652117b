"""model.json: the model's resolved revision, pinned at first use so that a hub's new commit does not change a running job."""

from __future__ import annotations

import json

from caption_assets.config import EngineConfig
from caption_assets.core.damage import Damaged, read_json
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectMissing, ObjectStore
from caption_assets.engines.modelfolder import model_folder
from caption_assets.engines.revision import resolve_revision


def pinned_revision(objects: ObjectStore, layout: Layout, engine: EngineConfig) -> str | None:
    """The revision of this dataset's model: a hub's as pinned in the store, else as it is now, and kept there.

    A folder's is a hash of its files and is taken anew each time: other files are another model. Raises EngineDown when a
    hub name cannot be resolved.
    """
    asked = f"{engine.model}@{engine.revision or ''}"
    on_hub = engine.kind != "openai" and model_folder(engine.model) is None
    pins = _read(objects, layout, on_hub)
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


def _read(objects: ObjectStore, layout: Layout, needed: bool) -> dict[str, str | None]:
    """What is pinned. A damaged file is written anew where nothing of it is needed; else it raises Damaged."""
    remove = "remove it: the revision that the hub has today is pinned then, and if that is another one all is asked anew"
    try:
        found = read_json(objects, layout.model, remove).get("revisions")
        if not isinstance(found, dict):
            raise Damaged(layout.model, "it names no revisions", remove)
        return found
    except ObjectMissing:
        return {}
    except Damaged:
        if needed:
            raise
        return {}

"""Files of the store and of exports that hold other bytes than were written there."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from caption_assets.core.objectstore import ObjectStore


class Damaged(ValueError):
    """A file that this program wrote is not as it was written. The message names it and the way out."""

    def __init__(self, uri: str, why: object, way_out: str) -> None:
        super().__init__(f"{uri}: is damaged ({' '.join(str(why).split())[:200]}): restore it from a copy, or {way_out}")


def read_json(objects: ObjectStore, uri: str, way_out: str, keys: Collection[str] = ()) -> dict[str, Any]:
    """The JSON object that lies there. Raises ObjectMissing, and Damaged where it is none or lacks one of the keys."""
    data = objects.read(uri)
    try:
        found = dict(json.loads(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise Damaged(uri, error, way_out) from None
    if lacking := [key for key in keys if key not in found]:
        raise Damaged(uri, f"it has no {', '.join(lacking)}", way_out)
    return found

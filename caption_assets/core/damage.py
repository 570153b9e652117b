"""Files of the store and of exports that hold other bytes than were written there."""

from __future__ import annotations

import json
from typing import Any

from caption_assets.core.objectstore import ObjectStore


class Damaged(ValueError):
    """A file that this program wrote is not as it was written. The message names it and the way out."""

    def __init__(self, uri: str, why: object, way_out: str) -> None:
        super().__init__(f"{uri}: is damaged ({' '.join(str(why).split())[:200]}): restore it from a copy, or {way_out}")


def read_json(objects: ObjectStore, uri: str, way_out: str) -> dict[str, Any]:
    """The JSON object that lies there. Raises ObjectMissing, and Damaged where it is none."""
    data = objects.read(uri)
    try:
        return dict(json.loads(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise Damaged(uri, error, way_out) from None

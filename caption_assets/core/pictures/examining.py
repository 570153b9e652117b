"""One picture as it was read: hash, size, full decode, or what is wrong with it; and its row in the mapping."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from PIL import Image

from caption_assets.config import DatasetConfig
from caption_assets.core.faults import Fault, PictureFault
from caption_assets.core.grids import cell_image
from caption_assets.core.images import decode
from caption_assets.core.sources.pictures import PictureRef


@dataclass(frozen=True, slots=True)
class Examined:
    """One picture as read: cell is set where it can be shown in a grid, fault where it cannot be shown at all."""

    sha256: bytes
    file_bytes: int
    width: int | None = None
    height: int | None = None
    format: str | None = None
    cell: Image.Image | None = None
    fault: Fault | None = None


def examine(data: bytes, spec: DatasetConfig, *, draw: bool) -> Examined:
    """Hash, full decode, and for `draw` the cell of a grid."""
    sha256 = hashlib.sha256(data).digest()
    try:
        decoded = decode(data, spec.images, spec.grid.cell_size if draw else 1)
    except PictureFault as error:
        return Examined(sha256, len(data), fault=error.fault)
    cell = cell_image(decoded, spec.grid) if draw else None
    return Examined(sha256, len(data), decoded.width, decoded.height, decoded.format, cell)


def mapping_row(ref: PictureRef, examined: Examined | Fault, spec: DatasetConfig) -> dict[str, Any]:
    """Its mapping row but for duplicate, grid and slot. In 1x1 the place is that of the picture itself."""
    row: dict[str, Any] = {"record_id": ref.record_id, "duplicate_of": None}
    fault = examined if isinstance(examined, Fault) else examined.fault
    if fault:
        row |= {"reason": fault.reason, "detail": fault.detail}
    if isinstance(examined, Examined):
        row |= {"sha256": examined.sha256.hex(), "file_bytes": examined.file_bytes}
        row |= {"width": examined.width, "height": examined.height, "format": examined.format}
    if spec.grid.single:
        inside = ref.byte_offset is not None
        row |= {"grid_object": ref.source_uri if inside else ref.uri}
        row |= {"byte_offset": ref.byte_offset, "byte_length": ref.byte_length}
    return row

"""The bytes of records' pictures, wherever they lie: members of tars, files, objects, rows of parquet files, http addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from caption_assets.config import DatasetConfig
from caption_assets.core.faults import Fault, PictureFault
from caption_assets.core.objectstore import ObjectError, ObjectStore
from caption_assets.core.sources.addresses import AddressRules


@dataclass(frozen=True, slots=True)
class PictureRef:
    """Where one picture lies, as its manifest row says: a member of a tar has byte_offset and byte_length (of the unpacked tar),
    a file is its own source_uri, a picture in a parquet row is `{source_uri}#{source_index}`, all else is a catalog's text."""

    record_id: str
    uri: str
    source_uri: str
    source_index: int
    byte_offset: int | None
    byte_length: int | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> PictureRef:
        """From a row of the manifest (one that has a uri)."""
        return cls(*(row[name] for name in ("record_id", "uri", "source_uri", "source_index", "byte_offset", "byte_length")))


class Pictures:
    def __init__(self, objects: ObjectStore, spec: DatasetConfig) -> None:
        self._objects, self._spec = objects, spec
        self._rules = AddressRules(spec)

    def stream(self, refs: Iterable[PictureRef]) -> Iterator[tuple[PictureRef, bytes | Fault]]:
        for ref in refs:
            try:
                yield ref, self.read(ref)
            except PictureFault as error:
                yield ref, error.fault

    def read(self, ref: PictureRef) -> bytes:
        try:
            if ref.byte_offset is not None:
                return self._objects.read(ref.source_uri, ref.byte_offset, ref.byte_length)
            if ref.uri == ref.source_uri:
                return self._objects.read(ref.source_uri)
            return self._objects.read(self._rules.resolve(ref.uri, ref.source_uri).uris[0])
        except ObjectError as error:
            raise PictureFault(error.reason, str(error)) from None

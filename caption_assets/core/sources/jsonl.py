"""Manifest rows of JSONL catalogs: one line, one record. Lines end at LF and are counted from 1, blank ones too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from caption_assets.config import FieldsConfig
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.plan.plans import PlanEntry, PlanError
from caption_assets.core.prompts import lookup
from caption_assets.core.sources.decompression import BLOCK, BrokenStream, Stream, UnsupportedCompression
from caption_assets.core.sources.names import safe_text
from caption_assets.core.sources.rows import Rows, Tally
from caption_assets.core.sources.texts import id_text, parse

LINE_LIMIT = 64 << 20
DETAIL_CHARS = 200
_BOM = b"\xef\xbb\xbf"


def read_jsonl(objects: ObjectStore, fields: FieldsConfig, entry: PlanEntry, path: str, tally: Tally) -> Iterator[pa.RecordBatch]:
    """The rows of one planned part of a catalog. PlanError when it has not the number of lines that were planned."""
    rows = Rows(tally)
    uri = safe_text(entry.source_uri)
    # A part that begins later has bytes of its own in a plain file; in a packed one its lines are counted from the beginning.
    length = entry.byte_length if entry.byte_offset or not entry.start else None
    try:
        stream = Stream(objects.open(entry.source_uri, entry.byte_offset, length), sniff=entry.byte_offset == 0)
    except UnsupportedCompression as error:
        detail = f"catalogs packed with {error} are not read; gz and zst are"
        rows.add(f"{path}#", None, uri, uri, 0, reason="unsupported_compression", detail=detail)
        yield rows.take()
        return
    with stream:
        skipped = 0 if stream.plain else entry.start
        wanted = sys.maxsize if entry.count is None else entry.count
        number = entry.start
        found = lines(stream)
        try:
            for at, line in enumerate(found):
                if at < skipped:
                    continue
                if at - skipped >= wanted:
                    break
                number += 1
                _add(rows, fields, line, f"{path}#{number}", number, uri, tally)
                if rows.full:
                    yield rows.take()
        except BrokenStream as error:
            rows.add(f"{path}#", None, uri, uri, 0, reason="truncated_shard", detail=f"after line {number}: {error}")
    if entry.count is not None and number - entry.start != wanted:
        raise PlanError(f"{entry.source_uri}: {number - entry.start} lines from line {entry.start + 1} on; the plan has {wanted}")
    yield rows.take()


def lines(stream: Stream) -> Iterator[bytes]:
    """Lines without their LF. One that is longer than LINE_LIMIT comes as its first LINE_LIMIT bytes.

    What stands before the fault of a broken stream without an LF is no line.
    """
    rest: list[bytes] = []
    held = 0
    while block := stream.read(BLOCK):
        pieces = block.split(b"\n")
        if len(pieces) > 1:
            rest.append(pieces[0])
            yield b"".join(rest)
            yield from pieces[1:-1]
            rest, held = [], 0
        if held <= LINE_LIMIT:
            rest.append(pieces[-1])
            held += len(pieces[-1])
    if held:
        yield b"".join(rest)


def _add(rows: Rows, fields: FieldsConfig, line: bytes, record_id: str, number: int, uri: str, tally: Tally) -> None:
    line = line.strip().removeprefix(_BOM).strip()  # files that were put together have marks within
    if not line:
        tally.ignored += 1
        return
    try:
        if len(line) > LINE_LIMIT:
            raise ValueError(f"longer than {LINE_LIMIT} bytes")
        record, text = parse(line)
        if not isinstance(record, dict):
            raise ValueError("not a JSON object")
    except ValueError as error:
        detail = safe_text(f"line {number}: {error}: {line[:DETAIL_CHARS].decode('utf-8', 'replace')}")
        rows.add(record_id, None, None, uri, number, reason="bad_json_line", detail=detail)
        return
    picture = picture_uri(lookup(record, fields.uri))
    if picture is None and fields.uri == "uri":
        picture = picture_uri(record.get("file_name"))
    found = id_text(lookup(record, fields.id), text, lambda exact: lookup(exact, fields.id))
    if picture is None:
        detail = f"line {number}: {fields.uri!r} is empty, missing or no text"
        rows.add(record_id, found, None, uri, number, text, reason="missing_uri", detail=detail)
    else:
        rows.add(record_id, found, safe_text(picture), uri, number, text)


def picture_uri(value: Any) -> str | None:
    """The address in a catalog's field: a text that is not blank, also as `path` of an image struct."""
    if isinstance(value, dict):
        value = value.get("path")
    return value if isinstance(value, str) and value.strip() else None

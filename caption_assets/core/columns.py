"""Names, types and meanings of every table's columns, and the reasons. Plain data: imports nothing.

The single place for them: Arrow schemas (`tables.arrow_schema`), Dagster's column metadata and the docs are made from it.
"""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """One column: an Arrow type by its name (`list<…>` allowed) and one sentence on its meaning."""

    name: str
    type: str
    description: str


PLAN = (
    Column("shard", "string", "shard key: the Dagster partition"),
    Column("source_uri", "string", "source object"),
    Column("kind", "string", "webdataset, jsonl, parquet or images"),
    Column("start", "int64", "0-based number of the first line, row or file of this entry within source_uri"),
    Column("count", "int64", "records of this entry; null for tars, which planning does not read"),
    Column("byte_offset", "int64", "first byte of the entry (JSONL), first row group (parquet), else 0"),
    Column("byte_length", "int64", "bytes of the entry (JSONL), row groups (parquet), else the size"),
    Column("size", "int64", "size of the source object in bytes when planned"),
    Column("etag", "string", "etag of the source object when planned (disk: mtime and size)"),
    Column("generation", "int64", "plan file the row belongs to, from 0"),
    Column("replaces", "string", "key of the shard this one retires, else null"),
)
MANIFEST = (
    Column("record_id", "string", "identity of the record"),
    Column("id", "string", "the catalog's id or the sample's key, digits exact"),
    Column("uri", "string", "where the picture lies"),
    Column("source_uri", "string", "source object the record was found in"),
    Column("source_index", "int64", "line, row or member number from 1; 0 for a fault of the whole file"),
    Column("record_json", "string", "the original record, losslessly, as JSON"),
    Column("byte_offset", "int64", "where the picture's bytes begin in source_uri; null where uri is its own object"),
    Column("byte_length", "int64", "length of the picture in bytes; null where unknown"),
    Column("reason", "string", "why the record cannot be read at all, else null"),
    Column("detail", "string", "the reason in words, else null"),
)
MAPPING = (
    Column("record_id", "string", "identity of the record"),
    Column("grid_id", "string", "the grid it is shown in; null in 1x1, for faults and duplicates"),
    Column("grid_object", "string", "path of the grid's tar in the store; 1x1: the source object"),
    Column("byte_offset", "int64", "first byte of the grid in its tar; 1x1: of the picture in grid_object"),
    Column("byte_length", "int64", "bytes of the grid; 1x1: of the picture"),
    Column("slot", "int32", "cell number in the grid, row-major from 1; null where there is none"),
    Column("sha256", "string", "of the picture's bytes as read from the source, hex"),
    Column("width", "int32", "pixels, upright"),
    Column("height", "int32", "pixels, upright"),
    Column("format", "string", "picture format, lower case: jpeg, png, webp, …"),
    Column("file_bytes", "int64", "size of the picture file in bytes"),
    Column("duplicate_of", "string", "record_id of the shard's first record with the same sha256, else null"),
    Column("reason", "string", "why the picture cannot be shown, else null"),
    Column("detail", "string", "the reason in words, else null"),
)
CAPTIONS = (
    Column("request_id", "string", "unique"),
    Column("grid_id", "string", "grid that was sent; null for a single picture or text"),
    Column("slots", "list<int32>", "cells asked for"),
    Column("record_ids", "list<string>", "record in each of slots"),
    Column("prompt_sha256s", "list<string>", "of the rendered prompt text of each record, hex"),
    Column("output", "string", "name of the prompt"),
    Column("recipe", "string", "recipe of the output"),
    Column("attempt", "int32", "from 1, per grid or single picture"),
    Column("reply", "string", "the model's text as it came; null when there was none"),
    Column("finish_reason", "string", "stop, length, …"),
    Column("error", "string", "timeout or model_error and what was said, else null"),
    Column("prompt_tokens", "int64", "tokens of the prompt"),
    Column("completion_tokens", "int64", "tokens of the reply"),
    Column("latency_ms", "double", "from sending to the whole reply"),
    Column("endpoint", "string", "who answered"),
    Column("model", "string", "model asked for"),
    Column("revision", "string", "its resolved revision"),
    Column("sent_at", "timestamp[us, tz=UTC]", "when it was sent"),
    Column("run_id", "string", "Dagster run"),
)
REVOKED = (
    Column("request_id", "string", "request taken back"),
    Column("endpoint", "string", "endpoint found lying"),
    Column("revoked_at", "timestamp[us, tz=UTC]", "when"),
)
MERGED_HEAD = (
    Column("record_id", "string", "identity of the record"),
    Column("id", "string", "the catalog's id or the sample's key"),
    Column("uri", "string", "where the picture lies"),
)
MERGED_TAIL = (
    Column("width", "int32", "pixels, upright"),
    Column("height", "int32", "pixels, upright"),
    Column("format", "string", "picture format"),
    Column("file_bytes", "int64", "size of the picture file in bytes"),
    Column("sha256", "string", "of the picture's bytes, hex"),
    Column("grid_id", "string", "grid it was shown in"),
    Column("slot", "int32", "its cell"),
    Column("duplicate_of", "string", "record whose caption it shares, else null"),
    Column("source_uri", "string", "source object"),
    Column("source_index", "int64", "line, row or member number"),
    Column("record_json", "string", "the original record as JSON"),
)
FAILED = (
    Column("record_id", "string", "identity of the record"),
    Column("id", "string", "the catalog's id or the sample's key"),
    Column("uri", "string", "where the picture lies"),
    Column("reason", "string", "why it has no caption: the first output's reason"),
    Column("detail", "string", "the reason in words"),
    Column("retryable", "bool", "whether asking again may help"),
    Column("attempt", "int32", "attempts made; 0 where none was"),
    Column("source_uri", "string", "source object"),
    Column("source_index", "int64", "line, row or member number"),
)
INFO_FIELDS = (
    Column("recipe", "string", "recipe of the output"),
    Column("model", "string", "model asked for"),
    Column("revision", "string", "its resolved revision"),
    Column("finish_reason", "string", "stop, length, …"),
    Column("attempt", "int32", "from 1"),
    Column("prompt_tokens", "int64", "of the request"),
    Column("completion_tokens", "int64", "of the request"),
    Column("latency_ms", "double", "of the request"),
    Column("endpoint", "string", "who answered"),
    Column("run_id", "string", "Dagster run"),
    Column("captioned_at", "timestamp[us, tz=UTC]", "when the request was sent"),
)


def merged_columns(outputs: list[str]) -> tuple[Column, ...]:
    """Columns of merged for these output names; `{output}_info` is a struct of INFO_FIELDS."""
    per_output = [
        column
        for name in outputs
        for column in (
            Column(name, "string", f"what the model said for the prompt {name}"),
            Column(f"{name}_reason", "string", f"why {name} is missing, else null"),
            Column(f"{name}_info", "info", f"how {name} was made: {', '.join(field.name for field in INFO_FIELDS)}"),
        )
    ]
    return (*MERGED_HEAD, *per_output, *MERGED_TAIL)


RESERVED_OUTPUT_NAMES = frozenset(c.name for table in (PLAN, MANIFEST, MAPPING, CAPTIONS, FAILED, MERGED_TAIL) for c in table)

TRANSIENT_REASONS = ("s3_error", "throttled", "timeout", "model_error")
REPLY_REASONS = (
    "parse_error", "missing_slot", "truncated_output", "empty_output", "bad_characters", "refusal", "prompt_echo",
    "boilerplate", "duplicate_caption", "repetition", "too_short", "too_long", "wrong_language",
)  # fmt: skip
SOURCE_REASONS = (
    "empty_file", "decode_error", "not_an_image", "unsupported_format", "too_many_pixels", "bad_dimensions", "missing_uri",
    "missing_image", "not_a_file", "unsupported_uri", "forbidden_address", "bad_json_line", "duplicate_key", "truncated_shard",
    "unordered_shard", "unsupported_compression", "link_member", "missing_target", "bad_sidecar", "object_missing",
)  # fmt: skip
REASONS = (*SOURCE_REASONS, *TRANSIENT_REASONS, *REPLY_REASONS)
RETRYABLE_REASONS = frozenset((*TRANSIENT_REASONS, *REPLY_REASONS))

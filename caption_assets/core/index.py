"""captions.duckdb: everything said about a dataset in one file for DuckDB, brought up to date shard by shard.

The published file is copied to local scratch, shards that changed are replaced in the copy, and the copy is put in its place
whole: readers see the old file or the new one. Tables: captions (one row per record with a caption), failed (one per record
without), shards (one per shard), about. Views: by_reason, by_recipe. Above index.max_rows captions and failed are views over the
parquet files; in S3 these need DuckDB's httpfs, so that `about` says how to make them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from caption_assets.config import DatasetConfig
from caption_assets.core.columns import FAILED, INFO_FIELDS, Column, merged_columns
from caption_assets.core.layout import Layout
from caption_assets.core.merging import Pair, read_pair
from caption_assets.core.objectstore import ObjectMissing, ObjectStore, scratch_dir
from caption_assets.core.recipes import digest
from caption_assets.core.tables import DamagedTable, TableHandle, literal_path

ROWS_AT_A_TIME, ROW_GROUP_ROWS = 1 << 14, 122_880
READERS = 16
MEMORY_LIMIT = "2GB"
_TYPES = {"string": "VARCHAR", "bool": "BOOLEAN", "int32": "INTEGER", "int64": "BIGINT", "double": "DOUBLE"}
_BY_REASON = """
    CREATE OR REPLACE VIEW by_reason AS
    SELECT place, reason, count(*) AS records, count(DISTINCT shard) AS shards, min(record_id) AS example
    FROM (SELECT 'failed' AS place, reason, shard, record_id FROM failed UNION ALL {union})
    GROUP BY place, reason ORDER BY records DESC"""
_BY_RECIPE = """
    CREATE OR REPLACE VIEW by_recipe AS
    SELECT output, info.recipe AS recipe, info.model AS model, info.revision AS revision, count(*) AS records,
           count(DISTINCT shard) AS shards, min(info.captioned_at) AS first_at, max(info.captioned_at) AS last_at
    FROM ({union}) GROUP BY ALL ORDER BY output, records DESC"""
_SHARDS = (
    "shard VARCHAR, data_version VARCHAR, recipe VARCHAR, run_id VARCHAR, records BIGINT, captioned BIGINT, failed BIGINT, "
    "merged_uri VARCHAR, failed_uri VARCHAR"
)


@dataclass(frozen=True)
class IndexRequest:
    """What an index shall hold: shards with their data_version, in order. left_out: shards that are not materialized."""

    spec: DatasetConfig
    shards: Mapping[str, str]
    left_out: Sequence[str]
    run_id: str


def build_index(objects: ObjectStore, layout: Layout, request: IndexRequest) -> dict[str, Any]:
    """Brings the dataset's captions.duckdb up to date and returns figures for the metadata. Raises ObjectError, duckdb.Error.

    A shard whose merged and failed are missing, disagree, or are not of the data_version asked for is left out and named.
    """
    with tempfile.TemporaryDirectory(prefix="caption-assets-", dir=scratch_dir()) as folder:
        return _Build(objects, layout, request, Path(folder)).run()


class _Build:
    """One call of build_index. `_old`: data_version, captions and failed rows of the shards in the published file."""

    def __init__(self, objects: ObjectStore, layout: Layout, request: IndexRequest, scratch: Path) -> None:
        self._objects, self._layout, self._request, self._scratch = objects, layout, request, scratch
        self._captions = merged_columns([prompt.name for prompt in request.spec.prompts])
        self._outputs = [prompt.name for prompt in request.spec.prompts]
        self._path = scratch / "captions.duckdb"
        self._left_out = list(request.left_out)
        self._old, self._old_kind = self._published()

    def run(self) -> dict[str, Any]:
        same = [shard for shard, version in self._request.shards.items() if self._old.get(shard, ("",))[0] == version]
        pairs = self._pairs([shard for shard in self._request.shards if shard not in same])
        gone = [shard for shard in self._old if shard not in same]
        captions = sum(self._old[shard][1] for shard in same) + sum(pair.merged.rows for pair in pairs.values())
        failed = sum(self._old[shard][2] for shard in same) + sum(pair.failed.rows for pair in pairs.values())
        kind = "views" if captions + failed > self._request.spec.index.max_rows else "tables"
        if pairs or gone or kind != self._old_kind:
            if kind == "views" or self._old_kind != "tables" or 2 * len(gone) > len(self._old):
                self._path.unlink(missing_ok=True)
                pairs |= self._pairs(same)
                gone = []
            with self._connect() as connection:
                self._write(connection, pairs, gone, kind)
            self._objects.put_file(self._layout.index, self._path)
        return {
            "path": self._layout.index,
            "captions": captions,
            "failed": failed,
            "shards": len(same) + len([shard for shard in pairs if shard not in same]),
            "shards_read": len(pairs),
            "left_out": len(self._left_out),
            "kind": kind,
            **({"left_out_shards": ", ".join(self._left_out[:20])} if self._left_out else {}),
            **({"note": _note(self._layout, self._request)} if kind == "views" else {}),
        }

    def _connect(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(str(self._path))
        connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'; SET enable_progress_bar = false")
        connection.execute("SET temp_directory = '{}'".format(str(self._scratch).replace("'", "''")))
        return connection

    def _published(self) -> tuple[dict[str, tuple[str, int, int]], str | None]:
        """The shards of the published file, copied to scratch, and its kind; nothing where it has to be made anew: there is none,
        it is of other columns, or this DuckDB cannot read it."""
        try:
            with self._objects.open(self._layout.index) as source, open(self._path, "wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
            with self._connect() as connection:
                about = dict(connection.sql("SELECT key, value FROM about").fetchall())
                rows = connection.sql("SELECT shard, data_version, captioned, failed FROM shards").fetchall()
        except (ObjectMissing, duckdb.Error):
            self._path.unlink(missing_ok=True)
            return {}, None
        if about.get("columns") != self._columns_digest():
            return {}, None
        return {shard: (version, captioned, failed) for shard, version, captioned, failed in rows}, about["kind"]

    def _columns_digest(self) -> str:
        return digest([list(column[:2]) for column in (*self._captions, *FAILED)])

    def _pairs(self, shards: Sequence[str]) -> dict[str, Pair]:
        found = {}
        with ThreadPoolExecutor(READERS) as pool:
            pairs = list(pool.map(lambda shard: read_pair(self._objects, self._layout, shard), shards))
        for shard, pair in zip(shards, pairs, strict=True):
            if pair is not None and pair.merged.metadata["data_version"] == self._request.shards[shard]:
                found[shard] = pair
            else:
                self._left_out.append(shard)
        return found

    def _write(self, connection: duckdb.DuckDBPyConnection, pairs: Mapping[str, Pair], gone: Sequence[str], kind: str) -> None:
        connection.execute(f"CREATE TABLE IF NOT EXISTS shards ({_SHARDS})")
        connection.execute("CREATE OR REPLACE TABLE about (key VARCHAR, value VARCHAR)")
        tables = ["shards"]
        if kind == "tables":
            tables += ["captions", "failed"]
            connection.execute(f"CREATE TABLE IF NOT EXISTS captions ({_ddl(self._captions)})")
            connection.execute(f"CREATE TABLE IF NOT EXISTS failed ({_ddl(FAILED)})")
        for name in tables if gone else ():
            connection.execute(f"DELETE FROM {name} WHERE shard IN (SELECT unnest(?))", [list(gone)])  # noqa: S608
        merged = {shard: pair.merged for shard, pair in pairs.items()}
        failed = {shard: pair.failed for shard, pair in pairs.items()}
        about = {"kind": kind, "columns": self._columns_digest(), "run_id": self._request.run_id}
        about["made_at"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
        if kind == "tables":
            connection.begin()
            self._insert(connection, "captions", self._captions, merged)
            self._insert(connection, "failed", FAILED, failed)
            connection.commit()
        else:
            statements = [_view("captions", self._captions, merged), _view("failed", FAILED, failed)]
            if "://" in self._layout.root:
                about["views"] = ";\n".join(statements)
            else:
                connection.execute(";".join(statements))
        rows = [
            (
                shard, *(pair.merged.metadata[key] for key in ("data_version", "dataset_recipe", "run_id")),
                pair.merged.rows + pair.failed.rows, pair.merged.rows, pair.failed.rows, pair.merged.uri, pair.failed.uri,
            )
            for shard, pair in pairs.items()
        ]  # fmt: skip
        if rows:
            connection.executemany("INSERT INTO shards VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        if "views" not in about:
            connection.execute(_BY_REASON.format(union=" UNION ALL ".join(_reasons(name) for name in self._outputs)))
            connection.execute(_BY_RECIPE.format(union=" UNION ALL ".join(_recipes(name) for name in self._outputs)))
        connection.executemany("INSERT INTO about VALUES (?, ?)", list(about.items()))
        connection.execute("CHECKPOINT")

    def _insert(
        self, connection: duckdb.DuckDBPyConnection, name: str, columns: Sequence[Column], handles: Mapping[str, TableHandle]
    ) -> None:
        """Inserts the shards' rows. Arrow reads: DuckDB looks at no checksums."""
        for shards in _groups(handles):
            schema, errors = handles[shards[0]].schema.remove_metadata(), list[Exception]()
            schema = schema.insert(0, pa.field("shard", pa.string()))
            rows = self._rows({shard: handles[shard] for shard in shards}, schema, errors)
            connection.register("rows_of_shards", pa.RecordBatchReader.from_batches(schema, rows))
            try:
                connection.execute(f"INSERT INTO {name} SELECT shard, {_shown(columns, schema.names)} FROM rows_of_shards")  # noqa: S608
            except duckdb.Error:
                if errors:
                    raise errors[0] from None
                raise

    def _rows(self, handles: Mapping[str, TableHandle], schema: pa.Schema, errors: list[Exception]) -> Iterator[pa.RecordBatch]:
        """errors: what is raised, since DuckDB hands on no more than its text."""
        try:
            for shard, handle in handles.items():
                for batch in self._batches(handle):
                    yield pa.RecordBatch.from_arrays([pa.repeat(shard, len(batch)), *batch.columns], schema=schema)
        except Exception as error:
            errors.append(error)
            raise

    def _batches(self, handle: TableHandle) -> Iterator[pa.RecordBatch]:
        """One that lies in S3 is fetched whole, in one request."""
        if "://" not in handle.uri:
            yield from handle.batches(self._objects, rows=ROWS_AT_A_TIME)
            return
        path = self._scratch / "table.parquet"
        with self._objects.open(handle.uri) as source, open(path, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
        try:
            yield from replace(handle, uri=str(path)).batches(self._objects, rows=ROWS_AT_A_TIME)
        except DamagedTable as error:
            raise DamagedTable(handle.uri, error.__cause__) from error


def _groups(handles: Mapping[str, TableHandle]) -> Iterator[list[str]]:
    """Shards to insert at a time, of the same columns: as many as fill one of DuckDB's row groups. Its threads mix the rows of an
    insert, and a shard whose rows lie together is cheap to replace."""
    group: list[str] = []
    rows = 0
    for shard, handle in handles.items():
        if not handle.rows:
            continue
        rows += handle.rows
        if group and (rows > ROW_GROUP_ROWS or handle.schema.names != handles[group[0]].schema.names):
            yield group
            group, rows = [], handle.rows
        group.append(shard)
    if group:
        yield group


def _ddl(columns: Sequence[Column]) -> str:
    return ", ".join(["shard VARCHAR", *(f'"{column.name}" {_type(column)}' for column in columns)])


def _type(column: Column) -> str:
    if column.type == "info":
        return "STRUCT({})".format(", ".join(f'"{field.name}" {_type(field)}' for field in INFO_FIELDS))
    return "TIMESTAMPTZ" if column.type.startswith("timestamp") else _TYPES[column.type]


def _shown(columns: Sequence[Column], present: Sequence[str]) -> str:
    """A column that a table lacks is null."""
    return ", ".join(f'"{c.name}"' if c.name in present else f'NULL::{_type(c)} AS "{c.name}"' for c in columns)


def _select(columns: Sequence[Column], present: Sequence[str], paths: Sequence[str]) -> str:
    """The rows of parquet files named `{shard}.parquet`."""
    files = ", ".join("'{}'".format(literal_path(path).replace("'", "''")) for path in paths)
    shown = f"parse_filename(filename, true) AS shard, {_shown(columns, present)}"
    return f"SELECT {shown} FROM read_parquet([{files}], filename = true)"  # noqa: S608


def _view(name: str, columns: Sequence[Column], handles: Mapping[str, TableHandle]) -> str:
    """A view over all files; one SELECT for each set of columns among them."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for handle in handles.values():
        groups.setdefault(tuple(handle.schema.names), []).append(handle.uri)
    selects = " UNION ALL ".join(_select(columns, present, paths) for present, paths in groups.items())
    return f"CREATE VIEW {name} AS {selects}"


def _reasons(output: str) -> str:
    return f'SELECT \'{output}\', "{output}_reason", shard, record_id FROM captions WHERE "{output}_reason" IS NOT NULL'  # noqa: S608


def _recipes(output: str) -> str:
    return f'SELECT \'{output}\' AS output, "{output}_info" AS info, shard FROM captions WHERE "{output}" IS NOT NULL'  # noqa: S608


def _note(layout: Layout, request: IndexRequest) -> str:
    """What a file of views means for whoever asks it."""
    note = f"more than index.max_rows ({request.spec.index.max_rows}) rows: captions and failed are views over the parquet files"
    if "://" in layout.root:
        note += "; in S3 they need httpfs: make them with the statements in about.views"
    return note

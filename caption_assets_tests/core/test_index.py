"""captions.duckdb: what can be asked, and what stays true while it is brought up to date."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from caption_assets.core.index import IndexRequest, build_index
from caption_assets.core.merging import read_pair
from caption_assets.core.tables import DamagedTable
from caption_assets_tests.core.mergekit import ONE, Collection, words
from caption_assets_tests.core.shardkit import jpeg, write_tar
from caption_assets_tests.servers import S3Server

QUERIES = re.findall(
    r"^```sql\n(.*?)^```", (Path(__file__).parents[2] / "docs/queries.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
)


def tars(root: Path, count: int = 3, **options: Any) -> tuple[Collection, list[str]]:
    """Shards of four records each: three captions and one that is too short; the last repeats a picture of the same tar."""
    collection = Collection(root, {"grid": ONE, **options})
    for number in range(count):
        pictures = [(f"{n}", jpeg(10 * number + n)) for n in range(3)] + [("3", jpeg(10 * number))]
        write_tar(collection.source / f"part-{number}.tar", pictures)
    shards = collection.prepare()
    for shard in shards:
        collection.caption_all(shard, lambda record: "A cat." if record.endswith("#1.jpg") else words(record))
        collection.merge(shard)
    return collection, shards


def build(collection: Collection, shards: list[str], left_out: tuple[str, ...] = ()) -> dict[str, Any]:
    versions = {}
    for shard in shards:
        pair = read_pair(collection.objects, collection.layout, shard)
        versions[shard] = pair.merged.metadata["data_version"] if pair else "lost"
    return build_index(collection.objects, collection.layout, IndexRequest(collection.spec, versions, list(left_out), "run-i"))


def ask(collection: Collection, query: str) -> list[Any]:
    with duckdb.connect(collection.layout.index, read_only=True) as connection:
        return connection.sql(query).fetchall()


def test_all_records_of_all_shards_are_in_it(tmp_path: Path) -> None:
    collection, shards = tars(tmp_path)
    figures = build(collection, shards, left_out=("part-9",))
    assert figures == {
        "path": collection.layout.index, "captions": 9, "failed": 3, "shards": 3, "shards_read": 3, "left_out": 1,
        "kind": "tables", "left_out_shards": "part-9",
    }  # fmt: skip
    merged = [row for shard in shards for row in collection.rows(collection.layout.merged(shard))]
    rows = ask(collection, "SELECT * FROM captions ORDER BY record_id")
    assert [row[1:5] for row in rows] == [tuple(row.values())[:4] for row in merged]
    assert ask(collection, "SELECT caption_info FROM captions ORDER BY record_id")[0][0] == merged[0]["caption_info"]
    assert ask(collection, "SELECT shard, record_id, reason, retryable FROM failed ORDER BY 1")[0] == (
        "part-0", "part-0.tar#1.jpg", "too_short", True,
    )  # fmt: skip
    assert ask(collection, "SELECT records, captioned, failed, merged_uri FROM shards WHERE shard = 'part-1'") == [
        (4, 3, 1, collection.layout.merged("part-1"))
    ]
    assert ask(collection, "SELECT place, reason, records, shards FROM by_reason") == [("failed", "too_short", 3, 3)]
    assert ask(collection, "SELECT output, recipe, model, records, shards FROM by_recipe") == [
        ("caption", collection.recipes["caption"], "stub", 9, 3)
    ]


def test_only_what_changed_is_read_again_and_readers_keep_their_file(tmp_path: Path) -> None:
    collection, shards = tars(tmp_path)
    build(collection, shards)
    assert build(collection, shards)["shards_read"] == 0
    with duckdb.connect(collection.layout.index, read_only=True) as reader:
        assert reader.sql("SELECT count(*) FROM captions").fetchall() == [(9,)]
        collection.say(shards[1], [collection.reply(["part-1.tar#1.jpg"], words("now"), attempt=2)])
        collection.merge(shards[1])
        figures = build(collection, shards)
        assert (figures["shards_read"], figures["captions"], figures["failed"]) == (1, 10, 2)
        assert reader.sql("SELECT count(*) FROM captions").fetchall() == [(9,)]
    assert ask(collection, "SELECT shard, count(*), count(DISTINCT record_id) FROM captions GROUP BY 1 ORDER BY 1") == [
        ("part-0", 3, 3), ("part-1", 4, 4), ("part-2", 3, 3),
    ]  # fmt: skip
    assert ask(collection, "SELECT captioned, failed FROM shards WHERE shard = 'part-1'") == [(4, 0)]


def test_shards_that_are_gone_or_disagree_leave_it(tmp_path: Path) -> None:
    collection, shards = tars(tmp_path)
    build(collection, shards)
    figures = build(collection, shards[:2])
    assert (figures["shards"], figures["captions"]) == (2, 6)
    failed = Path(collection.layout.failed(shards[0]))
    kept = failed.read_bytes()
    collection.options["filters"] = {"min_chars": 0}
    collection.merge(shards[0])
    failed.write_bytes(kept)
    figures = build(collection, shards[:2])
    assert (figures["shards"], figures["left_out"], figures["left_out_shards"]) == (1, 1, "part-0")
    assert ask(collection, "SELECT DISTINCT shard FROM captions") == [("part-1",)]


def test_a_shard_whose_table_is_damaged_leaves_it(tmp_path: Path) -> None:
    collection, shards = tars(tmp_path)
    Path(collection.layout.merged(shards[0])).write_bytes(b"PAR1 is not all PAR1")
    figures = build(collection, shards[:2])
    assert (figures["shards"], figures["left_out"], figures["left_out_shards"]) == (1, 1, "part-0")


def test_damage_behind_a_good_footer_is_named(tmp_path: Path) -> None:
    collection, shards = tars(tmp_path)
    file = Path(collection.layout.merged(shards[1]))
    data = file.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    file.write_bytes(data[:4] + bytes(len(data) - footer - 4) + data[-footer:])
    with pytest.raises(DamagedTable, match=f"^{file}: is damaged"):
        build(collection, shards)


def test_no_changed_byte_gets_into_it(tmp_path: Path) -> None:
    """Bytes that nobody reads, such as figures of a page's header, may change."""
    collection, shards = tars(tmp_path)
    file, query = Path(collection.layout.merged(shards[1])), "SELECT * FROM captions ORDER BY shard, record_id"
    data = file.read_bytes()
    build(collection, shards)
    right, named = ask(collection, query), 0
    footer = int.from_bytes(data[-8:-4], "little") + 8
    for place in range(50, len(data) - footer, (len(data) - footer) // 16):
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        Path(collection.layout.index).unlink(missing_ok=True)
        try:
            build(collection, shards)
            assert ask(collection, query) == right
        except DamagedTable:
            named += 1
    assert named > 4


def test_new_outputs_and_broken_files_are_met_by_building_anew(tmp_path: Path) -> None:
    collection, shards = tars(tmp_path)
    build(collection, shards)
    collection.options["prompts"] = [
        {"text": "Describe the picture."},
        {"name": "title", "text": "A title.", "filters": {"min_chars": 3}},
    ]
    records = [row["record_id"] for row in collection.rows(collection.layout.mapping(shards[0])) if row["duplicate_of"] is None]
    collection.say(shards[0], [collection.reply([record], "Boats", output="title") for record in records])
    collection.merge(shards[0])
    assert build(collection, shards)["shards_read"] == 3
    assert ask(collection, "SELECT shard, count(title), count(caption) FROM captions GROUP BY 1 ORDER BY 1") == [
        ("part-0", 4, 3), ("part-1", 0, 3), ("part-2", 0, 3),
    ]  # fmt: skip
    Path(collection.layout.index).write_bytes(b"half a file")
    assert build(collection, shards)["captions"] == 10
    assert ask(collection, "SELECT count(*) FROM captions") == [(10,)]


def test_above_max_rows_it_holds_views_and_says_so(tmp_path: Path) -> None:
    collection, shards = tars(tmp_path / "a [b] c*", index={"max_rows": 11})
    figures = build(collection, shards)
    assert figures["kind"] == "views" and "index.max_rows (11)" in figures["note"]
    assert ask(collection, "SELECT shard, count(*) FROM captions GROUP BY 1 ORDER BY 1") == [(shard, 3) for shard in shards]
    assert ask(collection, "SELECT count(*) FROM failed") == [(3,)]
    assert ask(collection, "SELECT records FROM by_reason") == [(3,)]
    assert ask(collection, "SELECT value FROM about WHERE key = 'kind'") == [("views",)]
    collection.options["index"] = {"max_rows": 12}
    assert build(collection, shards)["kind"] == "tables"
    assert ask(collection, "SELECT count(*) FROM captions") == [(9,)]


def test_a_store_in_s3(tmp_path: Path, s3_server: S3Server) -> None:
    place, objects = f"s3://{s3_server.make_bucket()}/x", s3_server.store()
    collection = Collection(tmp_path, {"grid": ONE}, objects, place).add({f"{n}.jpg": jpeg(n) for n in range(3)})
    (shard,) = collection.prepare()
    collection.caption_all(shard)
    collection.merge(shard)
    for kind, most in (("tables", 100), ("views", 1)):
        collection.options["index"] = {"max_rows": most}
        assert build(collection, [shard])["kind"] == kind
        local = tmp_path / f"{kind}.duckdb"
        local.write_bytes(objects.read(collection.layout.index))
        with duckdb.connect(str(local), read_only=True) as connection:
            if kind == "tables":
                assert connection.sql("SELECT count(*) FROM captions").fetchall() == [(3,)]
            else:
                ((views,),) = connection.sql("SELECT value FROM about WHERE key = 'views'").fetchall()
                assert f"{place}/store/photos/merged/{shard}.parquet" in views
            assert connection.sql("SELECT captioned FROM shards").fetchall() == [(3,)]


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_the_queries_of_the_documentation_run(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(QUERIES) >= 10
    collection, shards = tars(tmp_path, count=1)
    build(collection, shards)
    monkeypatch.chdir(tmp_path)
    with duckdb.connect(collection.layout.index, read_only=True) as connection:
        connection.execute(QUERIES[number])
        assert connection.fetchall() or "one|two" in QUERIES[number]

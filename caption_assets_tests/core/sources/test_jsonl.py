"""JSONL catalogs: every line is a record, a reason or blank; digits, line numbers and the original text are kept."""

import bz2
import gzip
import json
from pathlib import Path

import pytest
import zstandard

from caption_assets.core.plan.plans import PlanError, SourceChanged
from caption_assets.core.sources import read_manifest
from caption_assets_tests.core.sources.sourcekit import OBJECTS, collect, picture, sha256, spec, write

PICTURES = {f"images/p{n}.jpg": picture(n) for n in range(8)}


def read(tmp_path: Path, text: bytes, name: str = "c.jsonl", **options):
    write(tmp_path / "in", {**PICTURES, name: text})
    return collect(tmp_path / "in", tmp_path / "store", **options)


def line(n: int, **more) -> bytes:
    return json.dumps({"id": f"r{n}", "uri": f"images/p{n % 8}.jpg", "caption": f"old {n}", **more}, ensure_ascii=False).encode()


def test_bom_crlf_blank_lines_and_no_newline_at_the_end(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbf" + line(0) + b"\r\n\r\n   \n" + line(1) + b"\n\t\r\n" + line(2)
    got = read(tmp_path, text)
    assert {key: row["id"] for key, row in got.rows.items()} == {"c.jsonl#1": "r0", "c.jsonl#4": "r1", "c.jsonl#6": "r2"}
    assert got.good == {f"c.jsonl#{at}": sha256(PICTURES[f"images/p{n}.jpg"]) for n, at in enumerate((1, 4, 6))}
    assert got.rows["c.jsonl#1"]["record_json"] == line(0).decode() and got.summary["ignored"] == 3


def test_files_with_byte_order_marks_that_were_put_together(tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    got = read(tmp_path, mark + line(0) + b"\r\n" + mark + line(1) + b"\n" + mark + b"\r\n" + mark)
    assert {key: row["id"] for key, row in got.rows.items()} == {"c.jsonl#1": "r0", "c.jsonl#2": "r1"}
    assert not got.reasons and got.summary["ignored"] == 2 and list(got.record("c.jsonl#2")) == ["id", "uri", "caption"]


def test_unicode_line_separators_end_no_line(tmp_path: Path) -> None:
    got = read(tmp_path, line(0, note="a\u2028b\u2029c\x85d\x0be".replace("\x0b", "")) + b"\n" + line(1))
    assert list(got.rows) == ["c.jsonl#1", "c.jsonl#2"] and got.record("c.jsonl#1")["note"] == "a\u2028b\u2029c\x85de"


def test_garbage_is_reported_with_its_line(tmp_path: Path) -> None:
    bad = [line(0) + b"TRAILER", b"[" * 5000, b'["a", 1]', b'"text"', b"\xff\xfe\x00", b'{"id": 1', b"7", b"null", b"{'id': 1}"]
    text = b"\n".join(part for n, b in enumerate(bad) for part in (line(n), b)) + b"\n" + line(9)
    got = read(tmp_path, text)
    assert got.reasons == {f"c.jsonl#{2 * n + 2}": "bad_json_line" for n in range(len(bad))}
    assert len(got.good) == len(bad) + 1
    assert all(row["detail"].startswith(f"line {row['source_index']}: ") for row in got.rows.values() if row["reason"])


def test_ids_keep_every_digit(tmp_path: Path) -> None:
    written = [
        "9007199254740993",
        "18446744073709551615",
        "123456789012345678901234567890",
        "-9223372036854775809",
        "1.50",
        "1e3",
        "0.1000000000000000055511151231257827",
        "true",
        "7" * 5000,
    ]
    lines = [b'{"id": %s, "uri": "images/p0.jpg", "hash": %s}' % (text.encode(), b"7" * 4500) for text in written]
    got = read(tmp_path, b"\n".join(lines))
    assert [row["id"] for row in got.rows.values()] == written
    assert [row["record_json"] for row in got.rows.values()] == [text.decode() for text in lines]
    assert len(got.good) == len(written)


def test_lone_surrogates_and_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    lines = [
        b'{"id": "s\\ud800", "uri": "images/p0.jpg", "caption": "cut \\ud83d"}',
        b'{"id": "s\\ud801", "uri": "images/p1.jpg", "note": {"k\\ud800": ["v\\udfff"]}}',
        b'{"id": "ok", "uri": "images/p2.jpg", "caption": "\\ud83d\\ude00"}',
        b'{"id": "latin \xe9", "uri": "images/p3.jpg"}',
        b'{"id": "cesu \xed\xa0\xbd", "uri": "images/p4.jpg"}',
    ]
    got = read(tmp_path, b"\n".join(lines))
    assert [row["id"] for row in got.rows.values()] == ["s\\ud800", "s\\ud801", "ok", "latin \\udce9", "cesu \\ud83d"]
    assert len(got.good) == 5
    assert [got.rows[f"c.jsonl#{n}"]["record_json"] for n in (1, 2, 3)] == [text.decode() for text in lines[:3]]
    assert got.record("c.jsonl#4")["id"] == "latin \udce9"


def test_nan_and_deep_nesting(tmp_path: Path) -> None:
    deep = b'{"id": "d", "uri": "images/p1.jpg", "x": ' + b"[" * 900 + b"]" * 900 + b"}"
    deeper = b'{"id": "d", "uri": "images/p1.jpg", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    got = read(tmp_path, line(0, score=float("nan"), top=float("inf")) + b"\n" + deep + b"\n" + deeper)
    assert got.reasons == {"c.jsonl#3": "bad_json_line"}
    assert "NaN" in got.rows["c.jsonl#1"]["record_json"]


def test_rows_without_an_address(tmp_path: Path) -> None:
    values = ["null", '""', "12.5", '"  "', "[]", '{"bytes": null}']
    text = "\n".join(
        [*(f'{{"id": "v{n}", "uri": {v}}}' for n, v in enumerate(values)), '{"id": "none"}', '{"uri": "images/p0.jpg"}']
    )
    got = read(tmp_path, text.encode())
    assert got.reasons == {f"c.jsonl#{n}": "missing_uri" for n in range(1, 8)}
    assert got.rows["c.jsonl#8"]["id"] is None and "line 3" in got.rows["c.jsonl#3"]["detail"]


def test_addresses_that_lead_to_nothing(tmp_path: Path) -> None:
    text = b"\n".join(
        b'{"uri": %s}' % json.dumps(uri).encode()
        for uri in ("nan", "images/", "images", "images/p1.jpg/", "None", "a\0b", "x" * 5000)
    )
    got = read(tmp_path, text)
    assert list(got.reasons.values()) == [
        "missing_image",
        "not_a_file",
        "not_a_file",
        "not_a_file",
        "missing_image",
        "missing_image",
        "missing_image",
    ]


def test_fields_by_dotted_names(tmp_path: Path) -> None:
    rows = [{"meta": {"id": 7, "file": {"name": "images/p0.jpg"}}}, {"meta.id": 8, "meta": {"file.name": "images/p1.jpg"}}]
    got = read(tmp_path, b"\n".join(json.dumps(row).encode() for row in rows), fields={"id": "meta.id", "uri": "meta.file.name"})
    assert [row["id"] for row in got.rows.values()] == ["7", "8"] and len(got.good) == 2


def test_file_name_as_in_image_folders_of_hugging_face(tmp_path: Path) -> None:
    assert len(read(tmp_path, b'{"file_name": "images/p0.jpg", "text": "x"}').good) == 1


def test_equal_ids_are_different_records_and_counted(tmp_path: Path) -> None:
    got = read(tmp_path, b"\n".join(line(n % 3) for n in range(9)))
    assert len(got.good) == 9 and got.summary["equal_ids"] == 6


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_shards_cut_by_bytes_hold_the_same_lines(tmp_path: Path, size: int) -> None:
    text = b"\xef\xbb\xbf" + b"".join(line(n) + (b"\r\n", b"\n", b"\n\n")[n % 3] for n in range(20)).rstrip()
    got = read(tmp_path, text, shard_size=size)
    numbers = [row["source_index"] for row in got.rows.values()]
    assert [text.split(b"\n")[n - 1].strip(b"\r\xef\xbb\xbf").decode() for n in numbers] == [
        row["record_json"] for row in got.rows.values()
    ]
    lines = text.count(b"\n") + 1
    assert len(got.rows) == 20 and len(got.shards) == -(-lines // size)
    assert all(got.plan.records(shard) <= size for shard in got.shards)
    parts = [entry for shard in got.plan.shards for entry in got.plan.entries(shard)]
    assert [e.byte_offset + e.byte_length for e in parts] == [*(e.byte_offset for e in parts[1:]), len(text)]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz"])
def test_packed_catalogs_whole_and_cut_into_shards(tmp_path: Path, pack, name: str) -> None:
    text = b"".join(line(n) + b"\n" for n in range(25))
    got = read(tmp_path, pack(text), name, shard_size=10)
    assert [row["record_json"] for row in got.rows.values()] == text.decode().splitlines() and len(got.shards) == 3
    packed = pack(b"".join(line(n, x=sha256(b"%d" % n)) + b"\n" for n in range(5000)))
    broken = read(tmp_path / "broken", packed[: len(packed) // 2], name, shard_size=1000)
    assert broken.reasons == {f"{name}#": "truncated_shard"}
    whole = len(broken.rows) - 1
    assert 500 < whole < 4900 and [r["source_index"] for r in broken.rows.values()] == [*range(1, whole + 1), 0]


def test_other_packings_are_refused_by_name(tmp_path: Path) -> None:
    assert read(tmp_path, bz2.compress(line(0)), "c.jsonl.bz2").reasons == {"c.jsonl.bz2#": "unsupported_compression"}


def test_a_catalog_that_changed_or_went_after_planning(tmp_path: Path) -> None:
    got = read(tmp_path, line(0) + b"\n" + line(1) + b"\n")
    dataset, entries = spec(tmp_path / "in"), got.plan.entries("shard-00000")
    write(tmp_path / "in", {"c.jsonl": line(0) + b"\n" + line(1) + b"\n" + line(2)})
    with pytest.raises(SourceChanged, match=r"--accept-changed .*c\.jsonl"):
        list(read_manifest(OBJECTS, dataset, entries).batches)
    (tmp_path / "in" / "c.jsonl").unlink()
    rows = [row for batch in read_manifest(OBJECTS, dataset, entries).batches for row in batch.to_pylist()]
    assert [(row["record_id"], row["reason"]) for row in rows] == [("c.jsonl#", "object_missing")]


def test_a_part_with_other_lines_than_planned_is_an_error(tmp_path: Path) -> None:
    from dataclasses import replace

    got = read(tmp_path, line(0) + b"\n" + line(1))
    (entry,) = got.plan.entries("shard-00000")
    with pytest.raises(PlanError, match="the plan has 3"):
        list(read_manifest(OBJECTS, spec(tmp_path / "in"), [replace(entry, count=3)]).batches)


def test_a_line_without_end_costs_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caption_assets.core.sources.jsonl.LINE_LIMIT", 1 << 20)
    got = read(tmp_path, line(0) + b"\n" + b'{"uri": "' + b"x" * (9 << 20) + b'"}\n' + line(1))
    assert got.reasons == {"c.jsonl#2": "bad_json_line"} and len(got.good) == 2

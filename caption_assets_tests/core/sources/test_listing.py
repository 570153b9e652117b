"""Which files of a source count, as what, and what their records are called."""

import gzip
from pathlib import Path

import pytest
import zstandard

from caption_assets.core.plan.plans import PlanError
from caption_assets.core.sources.listing import detect, glob_pattern, record_path
from caption_assets.core.sources.names import sample_key, tar_stem
from caption_assets_tests.core.sources.sourcekit import OBJECTS, PNG, collect, picture, spec, tar_bytes, write, write_parquet

TAR = tar_bytes([("a.jpg", picture(0))])
LINES = b'{"uri": "p.jpg"}\n{"uri": "p.jpg"}\n'


def kind(folder: Path, name: str = "", **options) -> str:
    return detect(OBJECTS, spec(folder / name, **options), str(folder / name) if name else f"{folder}/")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (TAR, "webdataset"),
        (gzip.compress(TAR), "webdataset"),
        (zstandard.compress(TAR), "webdataset"),
        (LINES, "jsonl"),
        (gzip.compress(LINES), "jsonl"),
        (b"\xef\xbb\xbf" + LINES, "jsonl"),
        (picture(0), "images"),
        (PNG, "images"),
        (b'{"a": "' + b"x" * 9000 + b'"}\n', "jsonl"),
    ],
)
def test_a_file_of_any_name_is_told_by_its_content(tmp_path: Path, data: bytes, expected: str) -> None:
    write(tmp_path, {"data.bin": data})
    assert kind(tmp_path, "data.bin") == kind(tmp_path) == expected


def test_parquet_of_any_name(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in/data", [{"image": picture(0)}])
    assert kind(tmp_path / "in") == "parquet"
    assert len(collect(tmp_path / "in", tmp_path / "store").good) == 1


def test_catalogs_in_files_called_json_or_txt(tmp_path: Path) -> None:
    write(
        tmp_path / "in",
        {"c.json": LINES, "d.txt": LINES, "doc.json": b'{\n "a": 1\n}\n', "p.jpg": picture(0), "notes.txt": b"words"},
    )
    assert kind(tmp_path / "in") == "images"
    got = collect(tmp_path / "in", tmp_path / "store", format="jsonl")
    assert list(got.rows) == ["c.json#1", "c.json#2", "d.txt#1", "d.txt#2"] and got.plan_summary["ignored"] == 3
    assert list(collect(tmp_path / "in/c.json", tmp_path / "other").good) == ["c.json#1", "c.json#2"]


def test_what_wins_where_several_formats_are(tmp_path: Path) -> None:
    write(tmp_path, {"p.jpg": picture(0), "p.json": b"{}", "notes.md": b"#"})
    assert kind(tmp_path) == "images"
    write(tmp_path, {"c.jsonl": LINES})
    assert kind(tmp_path) == "jsonl"
    write_parquet(tmp_path / "x.parquet", [{"uri": "p.jpg"}])
    assert kind(tmp_path) == "parquet"
    write(tmp_path, {"0.tar": TAR, "._c.tar": b"junk"})
    assert kind(tmp_path) == "webdataset" and kind(tmp_path, format="images") == "images"
    assert list(collect(tmp_path, tmp_path / "store").good) == ["0.tar#a.jpg"]


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("/d/*.tar", ["/d/a.tar", "/d/.tar", "/d/a b.tar"], ["/d/s/a.tar", "/d/a.tar.gz"]),
        ("/d/**/*.tar", ["/d/a.tar", "/d/s/t/a.tar"], ["/e/a.tar"]),
        ("/d/[0-9]?.tar", ["/d/1x.tar"], ["/d/ax.tar", "/d/1/.tar", "/d/1xy.tar"]),
        ("/d/[!a]*", ["/d/b"], ["/d/a", "/d//x"]),
        ("/d/a+(b).tar*", ["/d/a+(b).tar.gz"], ["/d/aab.tar"]),
        ("/d/[.tar", ["/d/[.tar"], ["/d/x.tar"]),
    ],
)
def test_globs(glob: str, yes: list[str], no: list[str]) -> None:
    matches = glob_pattern(glob).fullmatch
    assert all(map(matches, yes)) and not any(map(matches, no))


@pytest.mark.parametrize(
    ("source", "uri", "path"),
    [
        ("/d/set", "/d/set/a/b.jpg", "a/b.jpg"),
        ("s3://b/set/", "s3://b/set//x.jpg", "/x.jpg"),
        ("s3://b", "s3://b/x.jpg", "x.jpg"),
        ("/d/set/c.jsonl", "/d/set/c.jsonl", "c.jsonl"),
        ("/d/20*/x-*.tar", "/d/2024/x-1.tar", "2024/x-1.tar"),
        ("/d/set/*.tar", "/d/set/a.tar", "a.tar"),
        ("/d/we[i]rd", "/d/we[i]rd/a.jpg", "a.jpg"),
        (["/d/a", "/d/b"], "/d/b/x.tar", "/d/b/x.tar"),
        (["/d/a"], "/d/a/x.tar", "x.tar"),
    ],
)
def test_the_path_in_a_record_id(source: str | list[str], uri: str, path: str) -> None:
    assert record_path(spec(source), uri) == path


def test_the_same_records_by_folder_and_by_glob(tmp_path: Path) -> None:
    write(tmp_path / "in", {f"{n}/s-{n}.tar": tar_bytes([("a.jpg", picture(n))]) for n in range(3)})
    by_folder = collect(tmp_path / "in", tmp_path / "store")
    by_glob = collect(f"{tmp_path}/in/*/s-*.tar", tmp_path / "other")
    assert by_folder.good == by_glob.good and len(by_folder.good) == 3
    assert list(collect(f"{tmp_path}/in/1/s-1.tar", tmp_path / "third").good) == ["s-1.tar#a.jpg"]


@pytest.mark.parametrize(
    ("member", "key", "field"),
    [
        ("a.jpg", "a", "jpg"),
        ("d.x/a.JPG", "d.x/a", "jpg"),
        ("a.left.jpg", "a", "left.jpg"),
        ("22.05.png", "22.05", "png"),
        ("v1.2.final.json", "v1.2", "final.json"),
        ("Track 2.0 (Clean).json", "Track 2.0 (Clean)", "json"),
        ("plain", "plain", ""),
        (".hidden.jpg", ".hidden", "jpg"),
        ("./a.jpg", "a", "jpg"),
        ("a..jpg", "a.", "jpg"),
        ("d/", "d/", ""),
        ("a.", "a", ""),
    ],
)
def test_keys_and_fields_of_members(member: str, key: str, field: str) -> None:
    assert sample_key(member) == (key, field)


def test_stems_of_tars() -> None:
    assert [tar_stem(f"x/{name}") for name in ("a.tar", "a.b.TAR.GZ", "c.tgz", "d", "e.zip")] == ["a", "a.b", "c", "d", "e"]


@pytest.mark.parametrize("glob", ["[z-a].jpg", "[^].jpg", "[!].jpg"])
def test_a_set_of_characters_that_is_none_is_told(tmp_path, glob):
    source = f"{write(tmp_path / 's', {'a.jpg': PNG})}/{glob}"
    with pytest.raises(PlanError, match="no set of characters") as said:
        collect(source, tmp_path / "store")
    assert source in str(said.value)

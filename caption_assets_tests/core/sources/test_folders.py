"""Image folders: every picture file is a record; texts beside it join it; names are taken as they are."""

import os
import socket
from pathlib import Path

import pytest

from caption_assets.core.plan.plans import SourceChanged
from caption_assets.core.sources import read_manifest
from caption_assets.core.sources.pictures import PictureRef, Pictures
from caption_assets_tests.core.sources.sourcekit import OBJECTS, collect, picture, sha256, spec, write

J = [picture(n) for n in range(10)]


def test_equal_stems_in_folders_and_with_other_extensions(tmp_path: Path) -> None:
    files = {
        "cats/001.jpg": J[0],
        "cats/001.png": J[1],
        "cats/002.jpg": J[2],
        "cats/002.JPG": J[3],
        "dogs/001.jpg": J[4],
        "a/b_c.jpg": J[5],
        "a_b/c.jpg": J[6],
        "dogs/001.webp": J[7],
    }
    write(tmp_path / "in", files)
    got = collect(tmp_path / "in", tmp_path / "store")
    assert got.good == {name: sha256(data) for name, data in files.items()}
    assert [row["id"] for row in got.rows.values()] == sorted(files) and got.record("cats/001.jpg") == {"path": "cats/001.jpg"}


def test_texts_join_the_pictures_they_are_named_after(tmp_path: Path) -> None:
    write(
        tmp_path / "in",
        {
            "a.jpg": J[0],
            "a.txt": "of a",
            "a.JSON": '{"n": 1}',
            "a.b.jpg": J[1],
            "a.b.txt": "of a.b",
            "a.png": J[2],
            "a.png.txt": "of a.png alone",
            "abc": J[3],
            "abc.txt": "of abc",
            "z.txt": "of nobody",
            "sub/a.jpg": J[4],
            "._a.txt": "junk",
        },
    )
    got = collect(tmp_path / "in", tmp_path / "store")
    assert {name: {k: v for k, v in got.record(name).items() if k != "path"} for name in got.rows} == {
        "a.jpg": {"txt": "of a", "json": {"n": 1}},
        "a.b.jpg": {"txt": "of a.b"},
        "a.png": {"txt": "of a.png alone", "json": {"n": 1}},
        "abc": {"txt": "of abc"},
        "sub/a.jpg": {},
    }


def test_texts_in_odd_encodings_never_fail_a_record(tmp_path: Path) -> None:
    texts = [
        b"plain",
        b"\x93quoted\x94 caf\xe9 \x9d",
        "utf16 é".encode("utf-16"),
        b"\xef\xbb\xbfbom",
        b"",
        b"a\0b",
        "naïve “—”".encode(),
    ]
    write(tmp_path / "in", {f"p{n}.jpg": J[n] for n in range(8)} | {f"p{n}.txt": text for n, text in enumerate(texts)})
    got = collect(tmp_path / "in", tmp_path / "store")
    assert len(got.good) == 8 and got.summary["bad_sidecars"] == 1
    assert [got.record(f"p{n}.jpg").get("txt") for n in range(8)] == [
        "plain",
        "�quoted� caf� �",
        "utf16 é",
        "bom",
        "",
        "a\0b",
        "naïve “—”",
        None,
    ]


def test_many_pictures_with_texts_in_shards_of_any_size(tmp_path: Path) -> None:
    names = [f"{n % 7}/x.{n:03d}" for n in range(60)]
    write(tmp_path / "in", {f"{name}.jpg": J[n % 10] for n, name in enumerate(names)} | {f"{name}.txt": name for name in names})
    for size in (1, 7, 100):
        got = collect(tmp_path / "in", tmp_path / f"store{size}", shard_size=size)
        assert {key: got.record(key)["txt"] for key in got.rows} == {f"{name}.jpg": name for name in names}
        assert [len(ids) for ids in got.shards.values()][:-1] == [size] * (len(got.shards) - 1)


def test_pictures_without_a_telling_name_and_files_that_are_none(tmp_path: Path) -> None:
    write(
        tmp_path / "in",
        {
            "0af3": J[0],
            "x.dat": J[1],
            "README": b"words",
            "notes.md": b"# hi",
            ".DS_Store": b"\0",
            "e.jpg": b"",
            "page.jpg": b"<html>",
        },
    )
    got = collect(tmp_path / "in", tmp_path / "store")
    assert set(got.good) == {"0af3", "x.dat", "page.jpg"} and got.reasons == {"e.jpg": "empty_file"}
    assert got.plan_summary["ignored"] == 3


def test_names_are_taken_literally(tmp_path: Path) -> None:
    names = [
        "a b.jpg",
        "a+b.jpg",
        "a%20b.jpg",
        "seg#1.jpg",
        "q?v=1&w=2.jpg",
        "写真 é.jpg",
        "100%.jpg",
        "[x].jpg",
        "*.jpg",
        "new\nline.jpg",
    ]
    write(tmp_path / "in [1]", {name: J[n] for n, name in enumerate(names)})
    got = collect(tmp_path / "in [1]", tmp_path / "store")
    assert got.good == {name: sha256(J[n]) for n, name in enumerate(names)}


def test_file_names_that_are_no_utf8(tmp_path: Path) -> None:
    folder = os.fsencode(write(tmp_path / "in", {"ok.jpg": J[0]}))
    for n, name in enumerate((b"caf\xe9.jpg", b"caf\xe8.jpg"), 1):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(J[n])
    got = collect(tmp_path / "in", tmp_path / "store")
    assert got.good == {"ok.jpg": sha256(J[0]), "caf\\udce9.jpg": sha256(J[1]), "caf\\udce8.jpg": sha256(J[2])}


def test_what_is_no_file_is_a_record_with_a_reason(tmp_path: Path) -> None:
    write(tmp_path / "in", {"ok.jpg": J[0]})
    os.mkfifo(tmp_path / "in" / "pipe.jpg")
    (tmp_path / "in" / "lost.jpg").symlink_to("nowhere.jpg")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    os.chdir(tmp_path / "in")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("s.jpg")
        got = collect(tmp_path / "in", tmp_path / "store")
    assert set(got.good) == {"ok.jpg"}
    assert got.reasons == {"pipe.jpg": "not_a_file", "lost.jpg": "object_missing", "s.jpg": "not_a_file"}


@pytest.mark.parametrize("name", ["t.tar", "a.parquet"])
def test_tars_and_catalogs_that_are_no_files(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    os.mkfifo(tmp_path / "in" / name)
    (tmp_path / "in" / f"lost.{name}").symlink_to("nowhere")
    got = collect(tmp_path / "in", tmp_path / "store")
    assert got.reasons == {f"{name}#": "not_a_file", f"lost.{name}#": "object_missing"}


def test_a_picture_that_went_is_missing_and_one_that_changed_stops_the_shard(tmp_path: Path) -> None:
    write(tmp_path / "in", {f"{n}.jpg": J[n] for n in range(4)})
    got = collect(tmp_path / "in", tmp_path / "store")
    dataset, entries = spec(tmp_path / "in"), got.plan.entries("shard-00000")
    (tmp_path / "in" / "1.jpg").unlink()
    rows = [row for batch in read_manifest(OBJECTS, dataset, entries).batches for row in batch.to_pylist()]
    data = dict(zip("0123", (d for _, d in Pictures(OBJECTS, dataset).stream(map(PictureRef.of, rows))), strict=True))
    assert data["1"].reason == "object_missing" and data["2"] == J[2]
    write(tmp_path / "in", {"2.jpg": J[5] + b"x"})
    with pytest.raises(SourceChanged, match="accept-changed"):
        list(read_manifest(OBJECTS, dataset, entries).batches)
    with pytest.raises(SourceChanged, match="accept-changed"):
        Pictures(OBJECTS, dataset).read(PictureRef.of(rows[2]))

"""`export --verify` notices whatever is no longer what was written, in every format."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from caption_assets.core.exports.exporting import WRITERS, verify
from caption_assets.core.exports.selection import ExportError
from caption_assets.core.exports.target import SUMMARY, listed, note_uri
from caption_assets_tests.core.exports.exportkit import pictures, run, tars
from caption_assets_tests.core.mergekit import Collection


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Collection, list[str]]]:
    return {"folder": pictures(tmp_path_factory.mktemp("pictures")), "tars": tars(tmp_path_factory.mktemp("tars"))}


Made = dict[str, tuple[Collection, list[str]]]


def exported(collections: Made, format: str, out: Path) -> tuple[Collection, list[str]]:
    if format == "lance":
        pytest.importorskip("lance")
    collection, shards = collections["tars" if format == "webshart" else "folder"]
    run(collection, shards, format, out)
    assert problems(collection, out) == []
    return collection, shards


def problems(collection: Collection, out: Path) -> list[str]:
    return verify(collection.objects, str(out), "photos")[1]


@pytest.mark.parametrize("format", WRITERS)
def test_changed_missing_and_shorter_files_are_noticed(collections: Made, format: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    collection, shards = exported(collections, format, out)
    files = [[line["name"] for line in listed(collection.objects, f"{out}/", shard)] for shard in shards]
    assert all(files)
    for name in [names[-1] for names in files]:
        path = out / name
        data = path.read_bytes()
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        assert f"{path}: has other bytes" in problems(collection, out)
        shorter = data[: data.rstrip(b"\n").rfind(b"\n") + 1]
        path.write_bytes(shorter or data[:-1])
        assert f"{path}: has other bytes" in problems(collection, out)
        path.unlink()
        assert f"{path}: is missing" in problems(collection, out)
        path.write_bytes(data)
    assert problems(collection, out) == []


@pytest.mark.parametrize("format", WRITERS)
def test_a_list_of_files_or_a_summary_that_is_not_the_written_one_is_noticed(
    collections: Made, format: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    collection, (shard, _) = exported(collections, format, out)
    files = Path(note_uri(f"{out}/", shard)).with_suffix(".jsonl")
    lines = files.read_text("utf-8").splitlines(keepends=True)
    files.write_text("".join(lines[:-1]), "utf-8")
    assert problems(collection, out)[0] == f"{files}: is not the list that was written"
    files.write_text("".join(lines), "utf-8")
    summary = json.loads((out / SUMMARY).read_text("utf-8"))
    (out / SUMMARY).write_text(json.dumps({**summary, "records": summary["records"] + 1}), "utf-8")
    assert problems(collection, out) == [f"{out}/{SUMMARY}: records is not the sum of its shards"]
    summary["shards"][shard]["records"] -= 1
    (out / SUMMARY).write_text(json.dumps({**summary, "records": summary["records"] - 1}), "utf-8")
    assert any(problem.startswith(f"{shard}: ") for problem in problems(collection, out))


def test_an_export_of_another_dataset_is_not_taken_for_this_ones(collections: Made, tmp_path: Path) -> None:
    collection, _ = exported(collections, "csv", tmp_path / "out")
    with pytest.raises(ExportError, match=r"out/ holds an export of photos, not of cats$"):
        verify(collection.objects, str(tmp_path / "out"), "cats")


def test_an_export_that_was_killed_is_noticed(collections: Made, tmp_path: Path) -> None:
    """Its first shard is there, and the second one, and the summing up, never came."""
    out = tmp_path / "out"
    collection, (first, second) = exported(collections, "jsonl", out)
    summary = json.loads((out / SUMMARY).read_text("utf-8"))
    (out / SUMMARY).write_text(json.dumps({**summary, "records": 0, "files": 0, "bytes": 0, "shards": {}}), "utf-8")
    Path(note_uri(f"{out}/", second)).unlink()
    assert problems(collection, out) == [f"{out}/: the export of {first} was broken off: export again"]


def test_samples_that_webdataset_does_not_see_are_noticed(collections: Made, tmp_path: Path) -> None:
    """A tar whose size and sums are those that are written down, but not its samples."""
    pytest.importorskip("webdataset")
    out = tmp_path / "out"
    collection, (shard, _) = exported(collections, "webdataset", out)
    path = next(iter(sorted(out.glob(f"{shard}-*.tar"))))
    fewer = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=fewer, mode="w", format=tarfile.GNU_FORMAT) as new:
        members = old.getmembers()
        for member in members[:-3]:
            new.addfile(member, old.extractfile(member))
        records = len(members) // 3
    path.write_bytes(fewer.getvalue())
    files, note, summary = Path(note_uri(f"{out}/", shard)).with_suffix(".jsonl"), Path(note_uri(f"{out}/", shard)), out / SUMMARY
    line = json.loads(files.read_text("utf-8"))
    change = path.stat().st_size - line["bytes"]
    line |= {"bytes": path.stat().st_size, "sha256": hashlib.sha256(fewer.getvalue()).hexdigest()}
    files.write_text(json.dumps(line) + "\n", "utf-8")
    entry = {"bytes": line["bytes"], "list_sha256": hashlib.sha256(files.read_bytes()).hexdigest()}
    note.write_text(json.dumps(json.loads(note.read_text("utf-8")) | entry), "utf-8")
    told = json.loads(summary.read_text("utf-8"))
    told["shards"][shard] |= entry
    summary.write_text(json.dumps({**told, "bytes": told["bytes"] + change}), "utf-8")
    assert problems(collection, out) == [f"{path}: WebDataset reads {records - 1} samples, not {records}"]


def test_rows_that_lance_does_not_give_are_noticed(collections: Made, tmp_path: Path) -> None:
    """A deletion leaves the data as it is and stands in a file of its own."""
    lance = pytest.importorskip("lance")
    out = tmp_path / "out"
    collection, (shard, _) = exported(collections, "lance", out)
    uri = f"{out}/captions.lance"
    lance.dataset(uri).delete("record_id = 'cats/001.jpg'")
    assert problems(collection, out) == [f"{uri}: Lance reads 4 rows of {shard}, not 5"]
    for version in (out / "captions.lance" / "_versions").iterdir():
        version.unlink()
    assert all(problem.startswith(f"{uri}: Lance cannot read it: ") for problem in problems(collection, out))
    assert len(problems(collection, out)) == 2

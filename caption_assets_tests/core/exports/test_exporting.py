"""What stays true of every export: selection, bringing it up to date, checking it, refusing to overwrite."""

from __future__ import annotations

import io
import json
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from caption_assets.core.exports.exporting import verify
from caption_assets.core.exports.job import Options
from caption_assets.core.exports.selection import ExportError
from caption_assets.core.plan.plans import SourceChanged
from caption_assets_tests.core.exports.exportkit import SAID, merged_texts, pictures, run, tars
from caption_assets_tests.core.mergekit import ONE, Collection, words
from caption_assets_tests.core.shardkit import jpeg, write_tar
from caption_assets_tests.servers import S3Server


def exported(folder: Path) -> dict[str, str]:
    return {
        line["record_id"]: line["caption"]
        for file in folder.glob("*.jsonl")
        for line in map(json.loads, file.read_text("utf-8").splitlines())
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Collection, list[str]]:
    return pictures(tmp_path_factory.mktemp("pictures"))


def test_unique_leaves_out_second_records_of_a_picture(made: tuple[Collection, list[str]], tmp_path: Path) -> None:
    run(*made, "jsonl", tmp_path / "out", unique=True)
    found = exported(tmp_path / "out")
    assert set(merged_texts(*made)) - set(found) == {"фото/кот на окне.jpg"}


def test_minimum_length_and_size(made: tuple[Collection, list[str]], tmp_path: Path) -> None:
    run(*made, "jsonl", tmp_path / "long", min_chars=500)
    assert set(exported(tmp_path / "long")) == {"cats/001.png"}
    run(*made, "jsonl", tmp_path / "large", min_side=40)
    assert set(exported(tmp_path / "large")) == {
        "cats/001.png", "dogs/001.jpg", "rel.v1.0/22.05.png", "rel.v1.0/22.10.png", "фото/кот на окне.jpg",
        "100% sure?.webp", "twice.jpg",
    }  # fmt: skip


STAGES = [
    {"name": "caption", "text": "Describe the picture."},
    {"name": "title", "text": "Give a title.", "filters": {"min_chars": 3}},
]


def two_outputs(root: Path) -> tuple[Collection, str]:
    """p0 has both outputs, p1 no title, p2 no caption."""
    collection = Collection(root, {"grid": ONE, "prompts": STAGES}).add({f"p{n}.jpg": jpeg(n) for n in range(3)})
    (shard,) = collection.prepare()
    for number, (caption, title) in enumerate(((words("0"), "Boats"), (words("1"), "X"), ("A cat.", "Cat here"))):
        record = [f"p{number}.jpg"]
        collection.say(shard, [collection.reply(record, caption), collection.reply(record, title, output="title")])
    collection.merge(shard)
    return collection, shard


def test_one_output_or_all_one_recipe_and_without_reasons(tmp_path: Path) -> None:
    collection, shard = two_outputs(tmp_path)

    def records(name: str, **selection: object) -> list[dict[str, object]]:
        run(collection, [shard], "jsonl", tmp_path / name, **selection)
        return [json.loads(line) for line in (tmp_path / name / f"{shard}.jsonl").read_text().splitlines()]

    assert [(r["id"], r["caption"] is None, r["title"]) for r in records("all")] == [
        ("p0.jpg", False, "Boats"), ("p1.jpg", False, None), ("p2.jpg", True, "Cat here"),
    ]  # fmt: skip
    titles = records("titles", output="title")
    assert [r["title"] for r in titles] == ["Boats", "Cat here"] and "caption" not in titles[0]
    assert [r["record_id"] for r in records("clean", without_reasons=("too_short",))] == ["p0.jpg"]
    assert [r["record_id"] for r in records("any", without_reasons=("*",))] == ["p0.jpg"]
    assert len(records("others", without_reasons=("refusal",))) == 3
    mine = collection.recipes["title"]
    assert [r["caption"] for r in records("recipe", recipe=mine)] == [None, None]
    assert records("none", recipe="0" * 16) == []
    with pytest.raises(ExportError, match="there is no output 'colour'; there are: caption, title"):
        records("wrong", output="colour")


def test_a_new_shard_exports_just_itself(tmp_path: Path) -> None:
    collection, shards = tars(tmp_path)
    out = tmp_path / "out"
    first = run(collection, shards, "webdataset", out)
    assert (first.written, first.kept, first.records) == (shards, [], 8)
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.tar")}
    write_tar(collection.source / "part-2.tar", [("000", jpeg(50))])
    (new,) = collection.prepare()
    collection.caption_all(new)
    second = run(collection, [*shards, new], "webdataset", out)
    assert (second.written, second.kept, second.not_merged) == ([], shards, [new])
    collection.merge(new)
    third = run(collection, [*shards, new], "webdataset", out)
    assert (third.written, third.kept, third.records) == ([new], shards, 9)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_shard_that_changed_leaves_no_old_files_behind(tmp_path: Path) -> None:
    collection, shards = pictures(tmp_path)
    for format, options in (("txt", Options()), ("webdataset", Options(maxcount=1, processes=1))):
        run(collection, shards, format, tmp_path / format, options)
    collection.options["filters"] = {"min_chars": 60}
    for shard in shards:
        collection.merge(shard)
    texts = merged_texts(collection, shards)
    assert 0 < len(texts) < 10
    for format, options in (("txt", Options()), ("webdataset", Options(maxcount=1, processes=1))):
        out = tmp_path / format
        result = run(collection, shards, format, out, options)
        files = [path for path in out.rglob("*") if path.is_file() and ".export" not in path.parts and path.name != "export.json"]
        assert result.records == len(files) == len(texts)
        assert verify(collection.objects, str(out), "photos")[1] == []


def test_a_retired_shard_leaves_the_export(tmp_path: Path) -> None:
    collection, shards = tars(tmp_path)
    out = tmp_path / "out"
    run(collection, shards, "webdataset", out)
    write_tar(collection.source / "part-0.tar", [("000", jpeg(90))])
    (new,) = collection.prepare(accept_changed=f"{collection.source}/part-0.tar")
    collection.caption_all(new)
    collection.merge(new)
    result = run(collection, [new, shards[1]], "webdataset", out)
    assert result.records == 5
    assert sorted(path.name for path in out.glob("*.tar")) == sorted([f"{new}-00000.tar", f"{shards[1]}-00000.tar"])


def test_the_manifest_of_an_export_adds_up_and_is_checked(tmp_path: Path) -> None:
    collection, shards = pictures(tmp_path)
    out = tmp_path / "out"
    result = run(collection, shards, "webdataset", out)
    summary, problems = verify(collection.objects, str(out), "photos")
    assert problems == [] and summary == json.loads((out / "export.json").read_text())
    assert summary["records"] == result.records == 10 and summary["format"] == "webdataset"
    assert list(summary["recipes"].values()) == [2]
    assert summary["bytes"] == sum(path.stat().st_size for path in out.glob("*.tar"))
    assert [entry["records"] for entry in summary["shards"].values()] == [5, 5]
    first, second = sorted(out.glob("*.tar"))
    first.write_bytes(first.read_bytes()[:-1] + b"x")
    second.unlink()
    assert verify(collection.objects, str(out), "photos")[1] == [f"{first}: has other bytes", f"{second}: is missing"]


def test_a_folder_of_something_else_is_never_touched(tmp_path: Path) -> None:
    collection, shards = pictures(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "001.txt").write_text("my own caption")
    with pytest.raises(ExportError, match="is not empty and is no export"):
        run(collection, shards, "txt", tmp_path / "mine")
    assert (tmp_path / "mine" / "001.txt").read_text() == "my own caption"
    with pytest.raises(ExportError, match="is inside the source"):
        run(collection, shards, "txt", collection.source / "captions")
    with pytest.raises(ExportError, match="belongs to the store"):
        run(collection, shards, "txt", f"{collection.layout.root}/merged")
    run(collection, shards, "txt", tmp_path / "out")
    with pytest.raises(ExportError, match=r"holds another export .format is 'txt', not 'jsonl'"):
        run(collection, shards, "jsonl", tmp_path / "out")
    with pytest.raises(ExportError, match=r"holds another export .selection"):
        run(collection, shards, "txt", tmp_path / "out", min_chars=20)
    with pytest.raises(ExportError, match="there is no format 'xlsx'"):
        run(collection, shards, "xlsx", tmp_path / "new")
    with pytest.raises(ExportError, match="there is no reason 'refused'"):
        run(collection, shards, "txt", tmp_path / "new", without_reasons=("refused", "*"))
    with pytest.raises(ExportError, match="holds no export"):
        verify(collection.objects, str(tmp_path / "mine"), "photos")


@pytest.mark.parametrize("format", ["webdataset", "imagefolder"])
def test_a_picture_that_is_gone_is_left_out_and_told(tmp_path: Path, format: str) -> None:
    catalog = "\n".join(json.dumps({"id": str(n), "uri": f"images/{n}.jpg"}) for n in range(3))
    collection = Collection(tmp_path, {"grid": ONE})
    collection.add({"catalog.jsonl": catalog.encode(), **{f"images/{n}.jpg": jpeg(n) for n in range(3)}})
    (shard,) = collection.prepare()
    collection.caption_all(shard)
    collection.merge(shard)
    (collection.source / "images" / "1.jpg").unlink()
    result = run(collection, [shard], format, tmp_path / "out")
    assert (result.records, result.left_out) == (2, 1)
    assert "missing_image" in result.left_out_examples[0]
    assert verify(collection.objects, str(tmp_path / "out"), "photos")[1] == []


def test_a_folder_is_free_again_when_an_export_into_it_was_refused(tmp_path: Path) -> None:
    collection, shards = pictures(tmp_path)
    out = tmp_path / "out"
    with pytest.raises(ExportError, match="export as webdataset instead"):
        run(collection, shards, "webshart", out)
    assert verify(collection.objects, str(out), "photos")[1] == [f"{out}/: nothing was exported into it"]
    assert run(collection, shards, "webdataset", out).records == 10
    assert verify(collection.objects, str(out), "photos")[1] == []


def test_a_picture_with_other_bytes_stops_the_export(tmp_path: Path) -> None:
    collection, shards = tars(tmp_path)
    write_tar(collection.source / "part-0.tar", [(f"{n:03d}", jpeg(60 + n)) for n in range(4)])
    with pytest.raises(SourceChanged, match="--accept-changed"):
        run(collection, shards, "webdataset", tmp_path / "out")
    assert list((tmp_path / "out").glob("*.tar")) == []


@pytest.mark.parametrize("format", ["webdataset", "txt", "hf"])
def test_source_store_and_export_in_s3(tmp_path: Path, s3_server: S3Server, format: str) -> None:
    place, objects = f"s3://{s3_server.make_bucket()}/a b", s3_server.store()
    collection, shards = pictures(tmp_path, place, objects)
    texts = merged_texts(collection, shards)
    result = run(collection, shards, format, f"{place}/out", Options(maxcount=2))
    summary, problems = verify(objects, f"{place}/out", "photos")
    assert problems == [] and summary["records"] == result.records == len(texts) == 10
    files = {info.uri.removeprefix(f"{place}/out/"): objects.read(info.uri) for info in objects.list(f"{place}/out/")}
    if format == "txt":
        assert sorted(data.decode() for name, data in files.items() if name.endswith(".txt")) == sorted(texts.values())
    if format == "webdataset":
        with tarfile.open(fileobj=io.BytesIO(files[f"{shards[0]}-00002.tar"])) as tar:
            assert len(tar.getnames()) == 3
    assert run(collection, shards, format, f"{place}/out", Options(maxcount=2)).kept == shards


def test_texts_of_every_kind_are_in_the_export(made: tuple[Collection, list[str]], tmp_path: Path) -> None:
    run(*made, "jsonl", tmp_path / "out")
    found = exported(tmp_path / "out")
    assert all(found[name] == text for name, text in SAID.items())


def test_shards_exported_at_the_same_time_are_all_in_the_summary(tmp_path: Path) -> None:
    collection, shards = tars(tmp_path, count=6)
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda shard: run(collection, [shard], "jsonl", tmp_path / "out"), shards))
    assert [result.written for result in results] == [[shard] for shard in shards]
    summary, problems = verify(collection.objects, str(tmp_path / "out"), "photos")
    assert problems == [] and sorted(summary["shards"]) == sorted(shards) and summary["records"] == 24

"""Planning: keys, groups, generations, what is new, what changed. The same source gives the same plan for ever."""

import os
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from caption_assets.core.layout import SHARD_KEY, Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.plan import generations
from caption_assets.core.planning import PlanError, PlanResult, load_plan, make_plan, new_objects
from caption_assets_tests.core.sources.sourcekit import OBJECTS, collect, picture, spec, tar_bytes, write, write_parquet

TAR = tar_bytes([("a.jpg", picture(0))])


def plan(tmp_path: Path, source: str | Path | list[str] = "", how: dict | None = None, **options) -> PlanResult:
    return make_plan(OBJECTS, Layout(str(tmp_path / "store"), "d"), spec(source or tmp_path / "in", **options), **(how or {}))


def files(result: PlanResult) -> dict[str, list[str]]:
    return {shard: [entry.source_uri.rsplit("/", 1)[1] for entry in result.plan.entries(shard)] for shard in result.plan.shards}


def test_tars_are_named_after_their_stem(tmp_path: Path) -> None:
    names = [
        "a.tar",
        "b.tar.gz",
        "c.TGZ",
        "0001.tar",
        "with space.tar",
        "0.94-to-0.95.tar",
        "-dash.tar",
        "x/same.tar",
        "y/same.tar",
        "ü写.tar",
        "L" * 150 + ".tar",
        "..tar",
    ]
    write(tmp_path / "in", dict.fromkeys(names, TAR))
    shards = files(plan(tmp_path))
    keys = {names[0]: key for key, names in shards.items()}
    assert len(shards) == len(names) and all(SHARD_KEY.match(key) for key in shards)
    assert [keys[n] for n in ("a.tar", "b.tar.gz", "c.TGZ", "0001.tar")] == ["a", "b", "c", "0001"]
    assert keys["with space.tar"].startswith("with_space-") and keys["0.94-to-0.95.tar"].startswith("0_94-to-0_95-")
    assert sum(key.startswith("same-") for key in shards) == 2
    assert list(files(plan(tmp_path / "again", tmp_path / "in"))) == list(shards)


def test_hard_folder_names_give_safe_distinct_stable_keys(tmp_path: Path) -> None:
    folders = [
        "nested/inner",
        "nested_inner",
        "0.94-to-0.95",
        "0.94-to-0.96",
        "a..b",
        "x|y",
        "with space",
        "ünï-写真",
        "UPPER",
        "upper",
        "-dash",
        "tab\there",
        "L" * 180,
        "series...part1",
    ]
    write(tmp_path / "in", {f"{folder}/shard.tar": tar_bytes([("a.jpg", picture(n))]) for n, folder in enumerate(folders)})
    before = {path: path.read_bytes() for path in (tmp_path / "in").rglob("*.tar")}
    got = collect(tmp_path / "in", tmp_path / "store")
    assert len(got.shards) == len(set(got.good.values())) == 14 and all(SHARD_KEY.match(key) for key in got.shards)
    assert set(got.rows) == {f"{folder}/shard.tar#a.jpg" for folder in folders}
    assert collect(tmp_path / "in", tmp_path / "other").shards == got.shards
    assert {path: path.read_bytes() for path in (tmp_path / "in").rglob("*.tar")} == before


def found(root: Path) -> PlanResult:
    return new_objects(OBJECTS, Layout(str(root / "store"), "d"), spec(root / "in"))


def test_looking_for_new_files_tells_what_changed_and_what_is_gone(tmp_path: Path) -> None:
    write(tmp_path / "in", {"a.tar": TAR, "b.tar": TAR, "c.tar": TAR})
    plan(tmp_path)
    assert found(tmp_path).problems == []
    write(tmp_path / "in", {"b.tar": TAR + bytes(512)})
    (tmp_path / "in/c.tar").unlink()
    changed, gone = found(tmp_path).problems
    assert f"caption-assets plan d --accept-changed {tmp_path}/in/b.tar" in changed and gone.endswith("in/c.tar")


def test_strange_files_in_the_plans_folder_are_no_plans(tmp_path: Path) -> None:
    write(tmp_path / "in", {"a.tar": TAR})
    plan(tmp_path)
    write(tmp_path / "store/d/plan", {"part.parquet": b"PAR1", ".gen-00001.parquet.tmp": b"", "old/gen-00000.parquet": b"PAR1"})
    assert list(plan(tmp_path).plan.shards) == ["a"]
    (tmp_path / "store/d/plan/gen-00002.parquet").write_bytes(b"PAR1")
    with pytest.raises(PlanError, match="without a gap"):
        plan(tmp_path)


def test_new_files_become_new_shards_and_old_ones_stay(tmp_path: Path) -> None:
    write(tmp_path / "in", {"b.tar": TAR, "d.tar": TAR})
    first = plan(tmp_path)
    data = (tmp_path / "store/d/plan/gen-00000.parquet").read_bytes()
    assert files(first) == {"b": ["b.tar"], "d": ["d.tar"]} and not found(tmp_path).new_files
    assert plan(tmp_path).new_shards == [] and not (tmp_path / "store/d/plan/gen-00001.parquet").exists()
    write(tmp_path / "in", {"a.tar": TAR, "sub/b.tar": TAR})
    assert found(tmp_path).new_files
    second = plan(tmp_path)
    assert list(second.plan.shards)[:3] == ["b", "d", "a"] and second.plan.shards[3].startswith("b-")
    assert (tmp_path / "store/d/plan/gen-00000.parquet").read_bytes() == data
    assert [e.generation for s in second.plan.shards for e in second.plan.entries(s)] == [0, 0, 1, 1]


def test_groups_of_tars_and_a_last_short_one(tmp_path: Path) -> None:
    write(tmp_path / "in", {f"{n}.tar": TAR for n in range(5)})
    held = plan(tmp_path, group_tars=2, how={"hold_back_short_groups": True})
    assert files(held) == {"0": ["0.tar", "1.tar"], "2": ["2.tar", "3.tar"]} and held.pending == [f"{tmp_path}/in/4.tar"]
    write(tmp_path / "in", {"45.tar": TAR})
    assert files(plan(tmp_path, group_tars=2, how={"hold_back_short_groups": True})) == {
        "0": ["0.tar", "1.tar"],
        "2": ["2.tar", "3.tar"],
        "4": ["4.tar", "45.tar"],
    }
    write(tmp_path / "in", {"0a.tar": TAR})
    assert files(plan(tmp_path, group_tars=2))["0a"] == ["0a.tar"]


def test_files_that_are_still_being_written_wait(tmp_path: Path) -> None:
    write(tmp_path / "in", {"old.tar": TAR, "young.tar": TAR})
    os.utime(tmp_path / "in/old.tar", (1, 1))
    result = plan(tmp_path, how={"settle_s": 60})
    assert list(files(result)) == ["old"] and result.unsettled == 1
    assert list(files(plan(tmp_path))) == ["old", "young"]


def test_changed_and_vanished_files_are_reported_and_not_planned_again(tmp_path: Path) -> None:
    write(tmp_path / "in", {f"{n}.tar": TAR for n in range(4)})
    before = files(plan(tmp_path))
    write(tmp_path / "in", {"1.tar": TAR + bytes(512)})
    (tmp_path / "in/2.tar").unlink()
    result = plan(tmp_path)
    assert files(result) == before and result.new_shards == []
    assert [change.uri for change in result.changed] == [f"{tmp_path}/in/1.tar"] and result.vanished == [f"{tmp_path}/in/2.tar"]
    assert "--accept-changed" in result.problems[0] and "2.tar" in result.problems[1]
    assert {k: result.summary()[k] for k in ("changed_files", "vanished_files", "new_files")} == {
        "changed_files": 1,
        "vanished_files": 1,
        "new_files": 0,
    }


def test_catalogs_are_cut_and_packed_in_order(tmp_path: Path) -> None:
    lines = {"a.jsonl": 3, "b.jsonl": 4, "c.jsonl": 25, "d.jsonl": 2, "e.jsonl": 10, "empty.jsonl": 0}
    write(tmp_path / "in", {name: [{"uri": "x"}] * count for name, count in lines.items()})
    result = plan(tmp_path, shard_size=10)
    assert list(files(result).items()) == [
        ("shard-00000", ["a.jsonl", "b.jsonl"]),
        ("shard-00001", ["c.jsonl"]),
        ("shard-00002", ["c.jsonl"]),
        ("shard-00003", ["c.jsonl", "d.jsonl"]),
        ("shard-00004", ["e.jsonl"]),
    ]
    assert [result.plan.records(s) for s in result.plan.shards] == [7, 10, 10, 7, 10] and result.ignored["empty"] == 1
    assert plan(tmp_path, shard_size=10).new_shards == []
    write(tmp_path / "in", {"aa.jsonl": [{"uri": "x"}]})
    assert plan(tmp_path, shard_size=10).new_shards == ["shard-00005"]


def test_large_folders_in_several_generations_without_holding_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "GENERATION_ROWS", 100)
    monkeypatch.setattr(generations, "ROW_GROUP_ROWS", 30)
    names = sorted(f"{n % 9}/{n:04d}.jpg" for n in range(430))
    write(tmp_path / "in", dict.fromkeys(names, b"x"))
    result = plan(tmp_path, shard_size=40)
    assert len(result.plan.generations) == 4 and len(result.plan.shards) == 11
    assert [e.source_uri[len(f"{tmp_path}/in/") :] for s in result.plan.shards for e in result.plan.entries(s)] == names
    entries = result.plan.entries("shard-00003")
    assert (
        len(entries) == 40
        and list(entries) == list(entries)
        and entries.digest() == load_plan(OBJECTS, Layout(str(tmp_path / "store"), "d")).entries("shard-00003").digest()
    )
    (tmp_path / "in" / names[77]).unlink()
    write(tmp_path / "in", {names[200]: b"other", "4/new.jpg": b"x"})
    again = plan(tmp_path, shard_size=40)
    assert (again.vanished, [c.uri for c in again.changed], again.new_shards) == (
        [f"{tmp_path}/in/{names[77]}"],
        [f"{tmp_path}/in/{names[200]}"],
        ["shard-00011"],
    )


def test_killed_planning_goes_on_from_its_last_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = enumerate((25, 3, 3, 30, 10, 1, 44))
    catalogs = {f"{n}.jsonl": b"".join(b'{"id": "%d-%d"}\n' % (n, line) for line in range(lines)) for n, lines in counts}
    write(tmp_path / "in", catalogs)
    straight = plan(tmp_path / "straight", tmp_path / "in", shard_size=10)

    class Killed(ObjectStore):
        last = ""

        def open(self, uri: str, offset: int = 0, length: int | None = None) -> BinaryIO:
            if uri.endswith(self.last):
                raise KeyboardInterrupt
            return super().open(uri, offset, length)

    monkeypatch.setattr(generations, "GENERATION_S", 0)
    layout, seen = Layout(str(tmp_path / "store"), "d"), []
    for Killed.last in ("2.jsonl", "4.jsonl", "6.jsonl", "never"):
        try:
            make_plan(Killed(), layout, spec(tmp_path / "in", shard_size=10))
        except KeyboardInterrupt:
            pass
        seen.append(len(load_plan(OBJECTS, layout).shards))
    resumed = load_plan(OBJECTS, layout)
    assert seen == sorted(seen) and 0 < seen[1] < seen[2] < seen[3]
    assert resumed.shards == straight.plan.shards
    for shard in resumed.shards:
        assert [e.identity for e in resumed.entries(shard)] == [e.identity for e in straight.plan.entries(shard)]
    for generation in resumed.generations:  # no catalog is cut by the end of a generation
        assert next(iter(resumed.entries(generation.shards[0].key))).start == 0


def test_several_sources_of_several_formats(tmp_path: Path) -> None:
    write(tmp_path, {"tars/a.tar": TAR, "folder/p.jpg": picture(1), "cat/c.jsonl": [{"uri": "p.jpg"}], "cat/p.jpg": picture(2)})
    sources = [f"{tmp_path}/tars", f"{tmp_path}/folder/", f"{tmp_path}/cat/*.jsonl", f"{tmp_path}/tars/a.tar"]
    got = collect(sources, tmp_path / "store")
    assert set(got.good) == {f"{tmp_path}/tars/a.tar#a.jpg", f"{tmp_path}/folder/p.jpg", f"{tmp_path}/cat/c.jsonl#1"}
    assert collect(sources, tmp_path / "store").shards == got.shards


@pytest.mark.parametrize("written", ["photos", "photos/", "photos/*.jpg"])
def test_a_source_that_was_moved_is_not_planned_again(tmp_path: Path, written: str) -> None:
    write(tmp_path / "a/photos", {f"{n}.jpg": picture(n) for n in range(3)})
    before = plan(tmp_path, f"{tmp_path}/a/{written}").plan.shards
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(PlanError, match=f"{tmp_path}/b/photos/0.jpg: is planned as {tmp_path}/a/photos/0.jpg, .*Put it back"):
        plan(tmp_path, f"{tmp_path}/b/{written}")
    (tmp_path / "a").symlink_to(tmp_path / "b")
    result = plan(tmp_path, f"{tmp_path}/a/{written}")
    assert result.plan.shards == before and not result.problems


def test_a_source_may_become_larger_or_one_of_a_list(tmp_path: Path) -> None:
    write(tmp_path / "in/a", {f"{n}.jpg": picture(n) for n in range(3)})
    write(tmp_path / "in/b", {f"{n}.jpg": picture(n) for n in range(3, 6)})
    assert len(plan(tmp_path, f"{tmp_path}/in/a/").plan.shards) == 1
    assert len(plan(tmp_path, [f"{tmp_path}/in/a/", f"{tmp_path}/in/b/"]).plan.shards) == 2
    write(tmp_path / "in/c", {"0.jpg": picture(7)})
    result = plan(tmp_path, f"{tmp_path}/in/")
    assert result.new_files == 1 and not result.problems


def test_a_source_keeps_the_format_it_was_planned_with(tmp_path: Path) -> None:
    write(tmp_path / "in", {"a.jpg": picture(0)})
    plan(tmp_path)
    write(tmp_path / "in", {"b.jpg": picture(1), "x.tar": TAR})
    result = plan(tmp_path)
    assert files(result) == {"shard-00000": ["a.jpg"], "shard-00001": ["b.jpg"]} and result.ignored["webdataset"] == 1


def test_the_store_is_no_source(tmp_path: Path) -> None:
    write(tmp_path, {"a.jpg": picture(0), "store/d/concat_grids/s/grids-00000.tar": TAR})
    assert files(plan(tmp_path, tmp_path)) == {"shard-00000": ["a.jpg"]}
    write(tmp_path, {"store/d/exports/webdataset/b.tar": TAR})
    assert list(files(make_plan_of_export(tmp_path))) == ["b"]


def make_plan_of_export(tmp_path: Path) -> PlanResult:
    return make_plan(OBJECTS, Layout(str(tmp_path / "store"), "other"), spec(tmp_path / "store/d/exports/webdataset"))


@pytest.mark.parametrize("made", ["nothing", "folder", "other", "unknown"])
def test_a_source_without_data_is_named(tmp_path: Path, made: str) -> None:
    if made != "nothing":
        (tmp_path / "in").mkdir()
    if made == "other":
        write(tmp_path / "in", {"notes.md": "words"})
    with pytest.raises(PlanError, match=str(tmp_path / "in")):
        plan(tmp_path, format="webdataset" if made == "unknown" else "auto")


def test_plans_made_at_the_same_time_agree(tmp_path: Path) -> None:
    write(tmp_path / "in", {f"{n:03d}.tar": TAR for n in range(50)})
    results: list[PlanResult] = []
    threads = [threading.Thread(target=lambda: results.append(plan(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and sum(len(result.new_shards) for result in results) == 50
    assert {result.plan.shards for result in results} == {tuple(f"{n:03d}" for n in range(50))}
    assert os.listdir(tmp_path / "store/d/plan") == ["gen-00000.parquet"]


def test_a_key_that_the_plan_does_not_know_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "in", {"a.tar": TAR})
    found = plan(tmp_path).plan
    assert "a" in found and "b" not in found
    with pytest.raises(PlanError, match="'b' is no shard"):
        found.entries("b")


def test_a_gap_between_generations_is_an_error(tmp_path: Path) -> None:
    write_parquet(tmp_path / "store/d/plan/gen-00001.parquet", [{"x": 1}])
    with pytest.raises(PlanError, match="gen-00000"):
        load_plan(OBJECTS, Layout(str(tmp_path / "store"), "d"))

"""`plan --accept-changed`: the file's shards are planned anew under new keys; the old ones are retired for good."""

from pathlib import Path

import pytest

from caption_assets.core.layout import Layout
from caption_assets.core.planning import PlanError, PlanResult, make_plan
from caption_assets_tests.core.sources.sourcekit import OBJECTS, collect, picture, spec, tar_bytes, write


def accept(tmp_path: Path, name: str, **options) -> PlanResult:
    return make_plan(OBJECTS, Layout(str(tmp_path / "store"), "d"), spec(tmp_path / "in", **options), accept_changed=name)


def tar(*numbers: int) -> bytes:
    return tar_bytes([(f"s{n}.jpg", picture(n)) for n in numbers])


def lines(count: int, first: int = 0) -> list[dict]:
    return [{"id": n, "uri": "p.jpg"} for n in range(first, first + count)]


def test_a_tar_that_arrives_whole_later(tmp_path: Path) -> None:
    whole = tar(*range(8))
    write(tmp_path / "in", {"t.tar": whole[: whole.index(picture(5)) + 50], "u.tar": tar(9)})
    first = collect(tmp_path / "in", tmp_path / "store")
    assert first.reasons == {"t.tar#": "truncated_shard"} and len(first.good) == 6
    write(tmp_path / "in", {"t.tar": whole})
    result = accept(tmp_path, "t.tar")
    assert result.plan.shards == ("u", "t-g1") and result.plan.retired == {"t": "t-g1"} and result.problems == []
    assert result.plan.replaced_by("t-g1") == ("t",)
    second = collect(tmp_path / "in", tmp_path / "store")
    assert not second.reasons and len(second.good) == 9
    assert {key: digest for key, digest in second.good.items() if key in first.good} == first.good
    write(tmp_path / "in", {"t.tar": tar(*range(7))})
    third = accept(tmp_path, f"{tmp_path}/in/t.tar")
    assert third.plan.shards == ("u", "t-g2") and third.plan.replaced_by("t-g2") == ("t-g1", "t")
    assert {entry.replaces for entry in third.plan.entries("t-g2")} == {"t-g1"}


def test_the_whole_group_of_a_changed_tar(tmp_path: Path) -> None:
    write(tmp_path / "in", {f"{n}.tar": tar(n) for n in range(4)})
    collect(tmp_path / "in", tmp_path / "store", group_tars=2)
    write(tmp_path / "in", {"1.tar": tar(1, 5), "9.tar": tar(9)})
    result = accept(tmp_path, "1.tar", group_tars=2)
    assert result.plan.shards == ("2", "0-g1", "9") and result.new_shards == ["0-g1", "9"]
    assert len(collect(tmp_path / "in", tmp_path / "store", group_tars=2).good) == 6


@pytest.mark.parametrize(("now", "shards"), [(45, 5), (12, 2), (25, 3), (3, 1)])
def test_a_catalog_that_spans_shards(tmp_path: Path, now: int, shards: int) -> None:
    """a (4 lines) stands before b (25, then `now`), c (3) behind it; shards of 10."""
    write(tmp_path / "in", {"a.jsonl": lines(4), "b.jsonl": lines(25), "c.jsonl": lines(3), "p.jpg": picture(0)})
    before = collect(tmp_path / "in", tmp_path / "store", shard_size=10)
    assert list(before.shards) == [f"shard-0000{n}" for n in range(4)]
    write(tmp_path / "in", {"b.jsonl": lines(now, 100)})
    result = accept(tmp_path, "b.jsonl", shard_size=10)
    after = collect(tmp_path / "in", tmp_path / "store", shard_size=10)
    assert len(after.good) == 4 + now + 3 and "shard-00000" in result.plan
    assert set(result.plan.retired) == {"shard-00001", "shard-00002", "shard-00003"}
    assert len(result.new_shards) == shards and result.new_shards[0] == "shard-00001-g1"
    assert {row["id"] for key, row in after.rows.items() if key.startswith("b.jsonl")} == {str(n) for n in range(100, 100 + now)}
    write(tmp_path / "in", {"d.jsonl": lines(1)})
    numbered = [int(key[6:11]) for key in result.plan.planned]
    (newest,) = make_plan(OBJECTS, Layout(str(tmp_path / "store"), "d"), spec(tmp_path / "in", shard_size=10)).new_shards
    assert int(newest[6:11]) == max(numbered) + 1


def test_what_else_changed_in_the_shard_is_accepted_with_it(tmp_path: Path) -> None:
    write(tmp_path / "in", {"a.jsonl": lines(15), "b.jsonl": lines(2), "c.jsonl": lines(2), "p.jpg": picture(0)})
    collect(tmp_path / "in", tmp_path / "store", shard_size=10)
    write(tmp_path / "in", {"a.jsonl": lines(13), "c.jsonl": lines(1)})
    (tmp_path / "in/b.jsonl").unlink()
    result = accept(tmp_path, "c.jsonl", shard_size=10)
    assert result.plan.shards == ("shard-00000-g1", "shard-00001-g1") and result.problems == []
    assert len(collect(tmp_path / "in", tmp_path / "store", shard_size=10).good) == 14


def test_a_picture_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "in", {f"{n}.jpg": picture(n) for n in range(9)})
    collect(tmp_path / "in", tmp_path / "store", shard_size=4)
    write(tmp_path / "in", {"5.jpg": picture(50) + b"longer"})
    result = accept(tmp_path, "5.jpg", shard_size=4)
    assert (
        result.plan.shards == ("shard-00000", "shard-00002", "shard-00001-g1") and len(result.plan.entries("shard-00001-g1")) == 4
    )
    assert len(collect(tmp_path / "in", tmp_path / "store", shard_size=4).good) == 9


def test_what_cannot_be_accepted(tmp_path: Path) -> None:
    write(tmp_path / "in", {"a.tar": tar(0), "b.tar": tar(1)})
    collect(tmp_path / "in", tmp_path / "store")
    with pytest.raises(PlanError, match=r"c\.tar: no shard"):
        accept(tmp_path, "c.tar")
    with pytest.raises(PlanError, match="nothing to accept"):
        accept(tmp_path, "a.tar")
    (tmp_path / "in/a.tar").unlink()
    with pytest.raises(PlanError, match="is gone"):
        accept(tmp_path, "a.tar")

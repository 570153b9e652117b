"""How many records shards of tars will have, before anybody has read them."""

import pytest

from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.plan.estimating import bytes_of, records_expected
from caption_assets.core.planning import make_plan
from caption_assets_tests.core.shardkit import Shard, jpeg, write_tar

PICTURES = {"a": 4, "b": 40, "c": 80}


@pytest.fixture
def plan(tmp_path):
    made = Shard(tmp_path, {"format": "webdataset"})
    for name, count in PICTURES.items():
        write_tar(tmp_path / "source" / f"{name}.tar", ((f"{name}{n}", jpeg(n)) for n in range(count)))
    return make_plan(ObjectStore(), made.layout, made.spec).plan


def test_bytes_of_shards(plan, tmp_path):
    sizes = bytes_of(plan, ["a", "c"])
    assert sizes == {name: (tmp_path / "source" / f"{name}.tar").stat().st_size for name in "ac"}


def test_tars_are_estimated_by_those_that_are_known(plan):
    found = records_expected(plan, ["a", "b", "c"], {"b": 40.0})
    assert found["b"] == 40 and found["c"] == pytest.approx(80, rel=0.15) and found["a"] < 12


def test_where_nothing_is_known_the_proportion_is_right(plan):
    found = records_expected(plan, list(PICTURES), {})
    assert found["c"] / found["b"] == pytest.approx(2, rel=0.15)


def test_what_the_plan_counts_is_taken_from_it(tmp_path):
    made = Shard(tmp_path, {"shard_size": 3})
    for number in range(8):
        path = tmp_path / "source" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(jpeg(number))
    plan = make_plan(ObjectStore(), made.layout, made.spec).plan
    assert records_expected(plan, list(plan.shards), {}) == {"shard-00000": 3, "shard-00001": 3, "shard-00002": 2}

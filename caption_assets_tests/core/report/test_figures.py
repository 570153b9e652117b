"""What the plots and costs of the report are made of: samples, spans of time, rates, words."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caption_assets.config import EngineConfig
from caption_assets.core.report import costs, plots, text
from caption_assets.core.report.costs import Costs, Traffic
from caption_assets.core.report.reading import EDGES, total_lengths
from caption_assets.core.report.sampling import CAPTIONED, Sample, divide

GROUPS = st.dictionaries(st.sampled_from([CAPTIONED, "refusal", "timeout", "empty_file"]), st.integers(1, 500))


@given(GROUPS, st.integers(8, 200))
def test_the_limit_is_used_up_and_every_group_is_represented(sizes, limit):
    shares = divide(sizes, limit)
    assert sum(shares.values()) == min(limit, sum(sizes.values()))
    assert all(0 < shares[name] <= size for name, size in sizes.items())


def test_a_few_failures_are_all_shown_among_many_captions():
    assert divide({CAPTIONED: 10**6, "refusal": 3, "timeout": 2}, 200) == {CAPTIONED: 195, "refusal": 3, "timeout": 2}
    assert divide({CAPTIONED: 10**6, "refusal": 900, "timeout": 2}, 200) == {CAPTIONED: 100, "refusal": 98, "timeout": 2}


def test_a_sample_is_drawn_evenly_and_the_same_each_time():
    def draw() -> set[int]:
        sample = Sample(100)
        for start in range(0, 100_000, 1000):
            ids = [f"{n}" for n in range(start, start + 1000)]
            sample.add(pa.table({"record_id": ids}), {CAPTIONED: np.ones(1000, bool)})
        assert sample.sizes == {CAPTIONED: 100_000}
        return {int(record) for record in sample.chosen()}

    drawn = draw()
    assert len(drawn) == 100 and drawn == draw()
    assert 30_000 < np.mean(list(drawn)) < 70_000 and min(drawn) < 10_000 and max(drawn) > 90_000


def test_spans_are_joined_over_small_gaps_and_stay_few():
    assert costs.spans(np.array([5.0, 0.0, 0.5]), np.array([6.0, 1.0, 4.5])) == [(0.0, 6.0)]
    assert costs.spans(np.array([0.0, 10.0]), np.array([1.0, 11.0])) == [(0.0, 1.0), (10.0, 11.0)]
    begins = np.arange(1000) * 10.0
    found = costs.spans(begins, begins + 1)
    assert len(found) <= costs.MOST_SPANS and found[0][0] == 0 and found[-1][1] == 9991


def test_what_two_shards_had_of_one_endpoint_at_once_is_paid_once():
    busy = costs.union([{"a": [(0.0, 10.0)], "b": [(0.0, 5.0)]}, {"a": [(8.0, 20.0)]}])
    assert costs.engine_seconds(busy) == 25 and costs.wall_seconds(busy) == 20


def test_the_rate_leaves_pauses_out():
    sent = np.r_[np.arange(0, 100), np.arange(10_000, 10_100)].astype(float)
    traffic = Traffic(Costs(busy={"a": costs.spans(sent, sent + 1)}), sent, sent + 1, np.full(200, 4))
    step, rates = costs.rate(traffic, 10)
    assert step == pytest.approx(20.0)
    assert rates == pytest.approx([4.0] * 10)
    assert costs.rate(Traffic(Costs(), np.zeros(0), np.zeros(0), np.zeros(0, np.int64)), 10) == (0.0, [])


def test_lengths_of_shards_add_up():
    assert total_lengths([{"a": [1, 2]}, {"a": [0, 1, 5], "b": []}]) == {"a": [1, 3, 5], "b": []}


@pytest.mark.parametrize("chars", [0, 37, 99, 100, 640, 3999, 4000, 90_000])
def test_every_length_can_be_drawn(chars):
    counts = [0] * len(EDGES)
    counts[int(np.searchsorted(EDGES, chars, "right")) - 1] = 7
    assert plots.lengths({"a": counts})


def test_plots_of_nothing_are_none_and_of_much_are_small():
    assert plots.lengths({"a": []}) is None and plots.rate(0.0, []) is None and plots.by_shard([None], "x") is None
    many = plots.by_shard([float(n % 7) for n in range(100_000)], "records/s")
    assert len(many) < 60_000
    assert len(plots.lengths({"a": [5] * len(EDGES), "b": [1] * len(EDGES)})) < 60_000


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("\x1b[31mred\x00", "⟨U+001B⟩[31mred⟨U+0000⟩"),
        ("line\nnext\tcell", "line\nnext\tcell"),
        ("\u2066\u200b\ufeff\u00ad", "⟨U+2066⟩⟨U+200B⟩⟨U+FEFF⟩⟨U+00AD⟩"),
        ("\U000e0041tag", "⟨U+E0041⟩tag"),
        ("سلام 👩‍👩‍👧 ありがとう é", "سلام 👩‍👩‍👧 ありがとう é"),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(said, shown):
    assert text.visible(said) == shown


def test_figures_for_people():
    assert [text.duration(s) for s in (None, 0.4, 80, 600, 7200, 400_000)] == [
        "–",
        "0.4 s",
        "80 s",
        "10 min",
        "2.0 h",
        "4.6 days",
    ]
    assert [text.share(s) for s in (None, 0.99999, 1, 0.5)] == ["–", "99.9 %", "100.0 %", "50.0 %"]
    assert [text.setting(v) for v in (True, None, [], ["a"], 0.7)] == ["on", "any", "none", "a", "0.7"]
    assert [text.brief(v) for v in (None, 0.0, 4.4e-05, 0.0001, 0.001234, 12.345, 50.0, 99.96, 1234.5)] == [
        "–", "0", "< 0.0001", "0.000100", "0.00123", "12.3", "50.0", "100", "1,234",
    ]  # fmt: skip
    assert (text.number(1234.5, 1), text.plural(1, "shard"), text.plural(1200, "shard")) == ("1,234.5", "1 shard", "1,200 shards")


def test_few_spans_keep_their_ends_and_the_largest_gaps():
    times = [(0.0, 1.0), (2.0, 3.0), (10.0, 11.0), (11.5, 12.0), (40.0, 41.0)]
    assert costs.brief({"a": times}, 3) == {"a": [(0.0, 3.0), (10.0, 12.0), (40.0, 41.0)]}
    assert costs.brief({"a": times}, 9) == {"a": times} and costs.brief({"a": []}, 3) == {"a": []}


def test_gpu_hours_for_a_million_pictures():
    """Two servers of two GPUs each, for half an hour and an hour, a quarter of an hour of it for two shards at once."""
    engine = EngineConfig(kind="vllm", server_args={"tensor_parallel_size": 2})
    first, second = {"a": [(0.0, 1800.0)], "b": [(0.0, 2700.0)]}, {"b": [(1800.0, 3600.0)]}
    hours = costs.gpu_hours(costs.union([first, second]), engine)
    assert hours == pytest.approx((0.5 + 1.0) * 2)
    assert costs.per_million(hours, 250_000) == pytest.approx(12.0)
    assert costs.per_million(hours, 0) is None and costs.per_million(0.0, 10) is None
    spent = costs.spent(Costs(requests=7, prompt_tokens=70, completion_tokens=700, busy=first), engine, 100_000)
    assert spent["engine_seconds"] == 4500 and spent["gpu_hours_per_million"] == pytest.approx(4500 * 2 / 3600 * 10)
    assert (spent["requests"], spent["prompt_tokens"], spent["completion_tokens"]) == (7, 70, 700)

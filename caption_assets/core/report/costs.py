"""What a shard's replies cost: requests, tokens, and the time in which an endpoint was at work. From the stored replies alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from caption_assets.config import EngineConfig
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.replies.chunks import CAPTIONS_SCHEMA, list_chunks, read_chunks

Times = npt.NDArray[np.float64]
Spans = list[tuple[float, float]]
"""(begin, end) in seconds since 1970, in order, apart from each other."""
GAP_S = 1.0
"""An endpoint without work for less than this was waiting for its next request, and is counted as at work."""
MOST_SPANS, BRIEF_SPANS = 32, 8
"""Per endpoint, in the report and in Dagster's records."""
_COLUMNS = ["record_ids", "prompt_tokens", "completion_tokens", "latency_ms", "endpoint", "sent_at"]


@dataclass
class Costs:
    """Of one shard. answers: captions asked for, one per cell; busy: by endpoint when it was at work."""

    requests: int = 0
    answers: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    busy: dict[str, Spans] = field(default_factory=dict)


@dataclass
class Traffic:
    """Every request of a shard: costs, and of each request when it was sent and answered, and how many captions it asked for."""

    costs: Costs
    sent_at: Times
    answered_at: Times
    answers: npt.NDArray[np.int64]


def read_traffic(objects: ObjectStore, folders: Iterable[str], answers_too: bool = True) -> Traffic:
    """Reads the chunks of these folders; also requests that were taken back or gave nothing were paid. Without answers_too they
    are not counted, which spares reading whose they are."""
    columns = _COLUMNS if answers_too else _COLUMNS[1:]
    costs, sent, ended, answers, endpoints = Costs(), [], [], [], []
    for folder in folders:
        for _, rows in read_chunks(objects, list_chunks(objects, folder, []), CAPTIONS_SCHEMA, columns, []):
            rows = rows.filter(pc.is_valid(rows["endpoint"]))
            costs.requests += rows.num_rows
            costs.prompt_tokens += pc.sum(rows["prompt_tokens"], min_count=0).as_py()
            costs.completion_tokens += pc.sum(rows["completion_tokens"], min_count=0).as_py()
            begin = rows["sent_at"].cast(pa.int64()).to_numpy() / 1e6
            sent.append(begin)
            ended.append(begin + pc.fill_null(rows["latency_ms"], 0.0).to_numpy() / 1000)
            if answers_too:
                answers.append(pc.list_value_length(rows["record_ids"]).to_numpy().astype(np.int64))
            endpoints += rows["endpoint"].to_pylist()
    none = np.zeros(0)
    begins, ends = np.concatenate([none, *sent]), np.concatenate([none, *ended])
    counts = np.concatenate([none.astype(np.int64), *answers])
    costs.answers = int(counts.sum())
    names = np.array(endpoints, object)
    for name in sorted(set(endpoints)):
        here = names == name
        costs.busy[name] = spans(begins[here], ends[here])
    return Traffic(costs, begins, ends, counts)


def spans(begins: Times, ends: Times) -> Spans:
    """The union of intervals, small gaps closed; at most MOST_SPANS."""
    if not len(begins):
        return []
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    gap = GAP_S
    while True:
        starts = np.flatnonzero(np.r_[True, begins[1:] > ends[:-1] + gap])
        if len(starts) <= MOST_SPANS:
            last = np.r_[starts[1:] - 1, len(ends) - 1]
            return list(zip(begins[starts].round(2).tolist(), ends[last].round(2).tolist(), strict=True))
        gap *= 2


def brief(busy: Mapping[str, Spans], most: int = BRIEF_SPANS) -> dict[str, Spans]:
    """The same in few spans: the smallest gaps are closed."""
    return {endpoint: _few(times, most) for endpoint, times in busy.items()}


def _few(times: Spans, most: int) -> Spans:
    gaps = sorted((b[0] - a[1] for a, b in itertools.pairwise(times)), reverse=True)
    least = gaps[most - 1] if len(gaps) >= most else -1.0
    few: Spans = []
    for begin, end in times:
        if few and begin - few[-1][1] <= least:
            few[-1] = (few[-1][0], end)
        else:
            few.append((begin, end))
    return few


def union(shards: Sequence[Mapping[str, Spans]]) -> dict[str, Spans]:
    """By endpoint, over several shards: what two shards had at the same time is counted once."""
    found: dict[str, Spans] = {}
    for busy in shards:
        for endpoint, times in busy.items():
            found.setdefault(endpoint, []).extend(times)
    return {endpoint: _flat(times) for endpoint, times in found.items()}


def seconds(times: Spans) -> float:
    return sum(end - begin for begin, end in times)


def engine_seconds(busy: Mapping[str, Spans]) -> float:
    """Seconds at work, of all endpoints together."""
    return sum(seconds(times) for times in busy.values())


def wall_seconds(busy: Mapping[str, Spans]) -> float:
    """Seconds in which any endpoint was at work."""
    return seconds(any_endpoint(busy))


def gpus_per_endpoint(engine: EngineConfig) -> int:
    """GPUs behind one endpoint, as far as the config says; 1 where it does not."""
    count = 1
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        count *= int(engine.server_args.get(name, 1))
    return count


def gpu_hours(busy: Mapping[str, Spans], engine: EngineConfig) -> float:
    """Hours of GPUs while their endpoints were at work."""
    return engine_seconds(busy) * gpus_per_endpoint(engine) / 3600


def per_million(hours: float, captioned: int) -> float | None:
    """GPU-hours for a million pictures; None where nothing was captioned or no time was taken."""
    return hours / captioned * 1e6 if captioned and hours else None


def spent(costs: Costs, engine: EngineConfig, captioned: int) -> dict[str, Any]:
    """A shard's costs as figures."""
    figures = {
        "requests": costs.requests,
        "prompt_tokens": costs.prompt_tokens,
        "completion_tokens": costs.completion_tokens,
        "engine_seconds": round(engine_seconds(costs.busy), 3),
        "gpu_hours_per_million": per_million(gpu_hours(costs.busy, engine), captioned),
    }
    return {name: value for name, value in figures.items() if value is not None}


def any_endpoint(busy: Mapping[str, Spans]) -> Spans:
    """When any endpoint was at work."""
    return _flat([span for times in busy.values() for span in times])


def _flat(times: Iterable[tuple[float, float]]) -> Spans:
    flat: Spans = []
    for begin, end in sorted(times):
        if flat and begin <= flat[-1][1] + GAP_S:
            flat[-1] = (flat[-1][0], max(end, flat[-1][1]))
        else:
            flat.append((begin, end))
    return flat


def rate(traffic: Traffic, points: int) -> tuple[float, list[float]]:
    """Captions per second over the time at work, pauses left out: seconds per point, and the rates. A request's captions are
    spread over the time that it took."""
    times = any_endpoint(traffic.costs.busy)
    total = seconds(times)
    if total <= 0:
        return 0.0, []
    begin, end = _position(traffic.sent_at, times), _position(traffic.answered_at, times)
    took = np.maximum(end - begin, 1e-6)
    done = [float((np.clip((edge - begin) / took, 0, 1) * traffic.answers).sum()) for edge in np.linspace(0, total, points + 1)]
    step = total / points
    return step, (np.diff(done) / step).tolist()


def _position(moments: Times, times: Spans) -> Times:
    """Seconds at work before each moment."""
    begins, ends = np.array(times).T
    before = np.r_[0.0, np.cumsum(ends - begins)][:-1]
    at = np.clip(np.searchsorted(begins, moments, "right") - 1, 0, None)
    return before[at] + np.clip(moments - begins[at], 0, ends[at] - begins[at])

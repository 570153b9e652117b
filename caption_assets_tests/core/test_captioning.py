"""Captions of one shard: every grid asked once, nothing asked twice, and what is stored says how it came about."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from caption_assets.core.captioning import GridsMissing, SourceChanged, SourceDown
from caption_assets.core.columns import CAPTIONS
from caption_assets.core.faults import Fault
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.sources.pictures import Pictures
from caption_assets.engines.base import ChatRequest
from caption_assets_tests.core.scripted import Scripted, good, reply
from caption_assets_tests.core.shardkit import ONE, Shard, jpeg, make_shard, write_tar


def test_each_grid_is_asked_once_and_a_second_run_asks_nothing(tmp_path):
    shard, engine = make_shard(tmp_path, 10), Scripted()
    summary = shard.captions(engine)
    assert [request.json_keys for request in engine.take()] == [("1", "2", "3", "4"), ("1", "2", "3", "4"), ("1", "2")]
    rows = shard.replies()
    assert list(rows[0]) == [column.name for column in CAPTIONS]
    asked = {record: slot for row in rows for record, slot in zip(row["record_ids"], row["slots"], strict=True)}
    assert sorted(asked) == [f"shard-a.tar#p{n:03d}.jpg" for n in range(10)] and asked["shard-a.tar#p005.jpg"] == 2
    assert {(row["attempt"], row["model"], row["run_id"], row["output"]) for row in rows} == {(1, "stub", "run-1", "caption")}
    assert summary.metadata()["requests"] == 3 and summary.metadata()["records"] == 10
    again = shard.captions(engine)
    assert engine.asked == [] and engine.sessions == 1  # no engine is started for nothing
    assert again.metadata()["resumed_records"] == 10 and again.data_version == summary.data_version


def test_a_grid_request_carries_the_grid_the_text_and_tokens_for_each_cell(tmp_path):
    shard, engine = make_shard(tmp_path, 3, sampling={"max_tokens": 50, "seed": 7}), Scripted()
    shard.captions(engine)
    (request,) = engine.asked
    assert request.image_type == "image/webp" and request.image[:4] == b"RIFF"
    assert "Describe the picture." in request.text and request.text.index("Describe") < request.text.index("Keys:")
    assert request.sampling["max_tokens"] == 150 and request.sampling["seed"] == 7


def test_one_by_one_sends_the_picture_as_its_own_bytes(tmp_path):
    shard, engine = make_shard(tmp_path, 5, grid=ONE), Scripted()
    shard.captions(engine)
    assert sorted(request.image for request in engine.asked) == sorted(jpeg(n) for n in range(5))
    assert all(request.text == "Describe the picture." and request.json_keys == () for request in engine.asked)
    assert [row["grid_id"] for row in shard.replies()] == [None] * 5


def test_a_picture_too_large_or_turned_is_sent_as_another_file(tmp_path):
    shard, engine = make_shard(tmp_path, 2, grid=ONE, images={"longest_side": 16}), Scripted()
    shard.captions(engine)
    assert all(request.image not in (jpeg(0), jpeg(1)) and request.image_type == "image/jpeg" for request in engine.asked)


def test_duplicates_are_asked_once(tmp_path):
    shard = Shard(tmp_path, {"grid": ONE})
    write_tar(shard.tar, [("a", jpeg(1)), ("b", jpeg(2)), ("c", jpeg(1)), ("d", jpeg(1))])
    engine = Scripted()
    summary = shard.prepare().captions(engine)
    assert len(engine.asked) == 2 and summary.metadata()["duplicates"] == 2 and shard.pending() == 0


def test_a_record_that_cannot_be_shown_is_not_asked(tmp_path):
    shard, engine = Shard(tmp_path), Scripted()
    write_tar(shard.tar, [("a", jpeg(1)), ("bad", b"no picture"), ("c", jpeg(2))])
    shard.prepare().captions(engine)
    assert [row["record_ids"] for row in shard.replies()] == [["shard-a.tar#a.jpg", "shard-a.tar#c.jpg"]]


def test_a_changed_picture_fails_the_shard_and_names_the_way_out(tmp_path):
    shard = make_shard(tmp_path, 4, grid=ONE)
    data = shard.tar.read_bytes()
    shard.tar.write_bytes(data.replace(jpeg(2), bytes(reversed(jpeg(2)))))
    with pytest.raises(SourceChanged, match=r"p002.jpg.*plan photos --accept-changed .*shard-a.tar"):
        shard.captions(Scripted())


def test_a_vanished_source_fails_the_shard_too(tmp_path):
    shard = make_shard(tmp_path, 4, grid=ONE)
    shard.tar.unlink()
    with pytest.raises(SourceChanged, match="--accept-changed"):
        shard.captions(Scripted())


def test_a_picture_that_a_catalog_points_to_may_vanish_alone(tmp_path):
    shard, engine = Shard(tmp_path, {"grid": ONE, "format": "jsonl"}, key="shard-00000"), Scripted()
    source = tmp_path / "source"
    source.mkdir()
    for number in range(3):
        (source / f"{number}.jpg").write_bytes(jpeg(number))
    (source / "catalog.jsonl").write_text("".join(f'{{"id": {n}, "uri": "{n}.jpg"}}\n' for n in range(3)))
    shard.prepare()
    (source / "1.jpg").unlink()
    shard.captions(engine, "run-a")
    assert len(engine.take()) == 2
    (row,) = [row for row in shard.replies() if row["error"]]
    assert row["record_ids"] == ["catalog.jsonl#2"] and row["error"].startswith("missing_image: ") and row["endpoint"] is None
    shard.captions(engine, "run-b")  # not a passing fault: nobody asks for it again unless told to
    shard.recaptions(engine, "run-b")
    assert engine.take() == []
    (source / "1.jpg").write_bytes(jpeg(1))
    shard.recaptions(engine, "run-c", extra_round=True, only_reasons=frozenset({"missing_image"}))
    assert len(engine.take()) == 1


def test_cleaned_grids_are_asked_for_by_name(tmp_path):
    shard = make_shard(tmp_path, 4)
    Path(shard.layout.grid_tar(shard.key, 0)).unlink()
    with pytest.raises(GridsMissing, match="materialize concat_grids again"):
        shard.captions(Scripted())


class _Unreadable(Pictures):
    """A source some of whose pictures cannot be read now."""

    bad: tuple[str, ...] = ()

    def stream(self, refs):
        for ref, data in super().stream(refs):
            yield ref, Fault("throttled", "SlowDown") if any(name in ref.record_id for name in self.bad) else data


def test_a_picture_that_cannot_be_read_now_is_stored_as_such_and_read_again_by_the_next_run(tmp_path, monkeypatch):
    monkeypatch.setattr("caption_assets.core.loop.feeding.Pictures", _Unreadable)
    shard, engine = make_shard(tmp_path, 6, grid=ONE), Scripted()
    monkeypatch.setattr(_Unreadable, "bad", ("p001", "p004"))
    shard.captions(engine, "run-a")
    assert len(engine.take()) == 4
    errors = {row["record_ids"][0]: row["error"] for row in shard.replies() if row["error"]}
    assert errors == {f"shard-a.tar#p00{n}.jpg": "throttled: SlowDown" for n in (1, 4)}
    shard.captions(engine, "run-a")  # a retry of the step within the run does not try again for ever
    assert engine.take() == []
    monkeypatch.setattr(_Unreadable, "bad", ())
    shard.captions(engine, "run-b")
    assert len(engine.take()) == 2 and shard.pending() == 0


def test_a_source_that_is_away_stops_the_run_instead_of_failing_its_records(tmp_path, monkeypatch):
    monkeypatch.setattr("caption_assets.core.loop.feeding.Pictures", _Unreadable)
    monkeypatch.setattr(_Unreadable, "bad", ("p",))
    shard = make_shard(tmp_path, 40, grid=ONE)
    with pytest.raises(SourceDown, match="in a row cannot be read"):
        shard.captions(Scripted())
    assert shard.replies() == []


def test_stale_and_torn_files_among_the_chunks_do_not_matter(tmp_path):
    shard, engine = make_shard(tmp_path, 8), Scripted()
    shard.captions(engine)
    folder = Path(shard.layout.chunks_folder(shard.key, "caption", shard.recipes["caption"]))
    chunk = min(folder.iterdir())
    for name in ("part.parquet", "part.tar", ".part.parquet.tmp", "run-9-0123abcd-00000.parquet"):
        (folder / name).write_bytes(chunk.read_bytes()[:100])
    engine.take()
    summary = shard.captions(engine)
    assert engine.take() == [] and len(summary.warnings) == 4
    rows = pq.read_metadata(chunk).num_rows
    chunk.unlink()
    assert shard.pending() == rows


def test_what_is_in_flight_and_unstored_is_bounded(tmp_path):
    shard, engine = make_shard(tmp_path, 60, grid=ONE), Scripted(concurrency=5, delay_s=0.002)
    shard.captions(engine)
    assert engine.most_in_flight == 5 and len(engine.asked) == 60


class _SlowStore(ObjectStore):
    def put(self, uri: str, data: bytes) -> None:
        if "/captions/" in uri:
            time.sleep(0.15)
        super().put(uri, data)


class _SlowPictures(Pictures):
    def stream(self, refs):
        for item in super().stream(refs):
            time.sleep(0.01)
            yield item


@pytest.mark.parametrize("slow", ["feed", "engine", "store"])
def test_the_summary_says_which_part_set_the_pace(tmp_path, monkeypatch, slow):
    if slow == "feed":
        monkeypatch.setattr("caption_assets.core.loop.feeding.Pictures", _SlowPictures)
    shard = make_shard(tmp_path, 30 if slow != "store" else 250, grid=ONE)
    if slow == "store":
        shard.objects = _SlowStore()
    engine = Scripted(concurrency=4, delay_s=0.05 if slow == "engine" else 0.0)
    figures = shard.captions(engine).metadata()
    assert figures["bottleneck"] == slow, figures
    assert figures[f"{slow}_wait_s"] == max(figures[f"{part}_wait_s"] for part in ("feed", "engine", "store"))


def test_feed_engine_and_store_work_at_the_same_time(tmp_path, monkeypatch):
    """Pictures are still being read when the first answers are in."""
    read: list[float] = []

    class Watched(Pictures):
        def stream(self, refs):
            for item in super().stream(refs):
                read.append(time.monotonic())
                time.sleep(0.002)
                yield item

    monkeypatch.setattr("caption_assets.core.loop.feeding.Pictures", Watched)
    answered: list[float] = []

    def answer(request: ChatRequest) -> str:
        answered.append(time.monotonic())
        return good(request)

    make_shard(tmp_path, 100, grid=ONE).captions(Scripted(answer))
    assert min(answered) < max(read)


def test_two_runs_at_once_leave_a_right_output(tmp_path):
    shard = make_shard(tmp_path, 24, grid=ONE)
    engines = [Scripted(delay_s=0.01, concurrency=3) for _ in range(2)]
    threads = [threading.Thread(target=shard.captions, args=(engine, f"run-{n}")) for n, engine in enumerate(engines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = {record for row in shard.replies() for record in row["record_ids"]}
    assert len(records) == 24 and shard.pending() == 0


def test_progress_is_told_to_the_caller(tmp_path):
    told = []
    shard = make_shard(tmp_path, 12, grid=ONE)
    shard.captions(Scripted(concurrency=2, delay_s=0.3), on_progress=lambda done, total, figures: told.append((done, total)))
    assert told and all(total == 12 for _, total in told) and told == sorted(told)


def test_counting_ahead_says_what_will_be_asked(tmp_path):
    shard = make_shard(
        tmp_path, 9, prompts=[{"text": "One."}, {"name": "tags", "text": "Tags of {output.caption}", "image": False}]
    )
    assert shard.pending() == 3 + 9
    engine = Scripted()
    shard.captions(engine)
    assert len(engine.asked) == 12 and shard.pending() == 0


def test_null_content_is_an_answer_and_not_asked_again(tmp_path):
    shard, engine = make_shard(tmp_path, 2, grid=ONE), Scripted(lambda request: reply(request, None))
    shard.captions(engine)
    engine.take()
    shard.captions(engine)
    assert engine.take() == []


def test_an_event_loop_in_the_calling_thread_is_no_obstacle(tmp_path):
    async def run() -> int:
        return shard.captions(engine).metadata()["requests"]

    shard, engine = make_shard(tmp_path, 4), Scripted()
    assert asyncio.run(run()) == 1

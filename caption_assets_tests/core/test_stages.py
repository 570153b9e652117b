"""Several outputs, templates and stages: a change asks for what depends on it, and for nothing else."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from caption_assets.core.prompts import prompt_sha256
from caption_assets.core.tables import write_parquet
from caption_assets.engines.base import ChatRequest
from caption_assets_tests.core.scripted import Scripted, good, reply
from caption_assets_tests.core.shardkit import ONE, Shard, jpeg, make_shard, write_tar

PROMPTS = [
    {"name": "caption", "text": "Describe the picture."},
    {"name": "tags", "text": "Tags, please."},
    {"name": "line", "text": "One line about {record.json.title} for: {output.caption}", "image": False},
]
TITLES = {f"p{n:03d}": {"title": f"title {n}"} for n in range(6)}


def outputs(shard: Shard, engine: Scripted) -> Counter[str]:
    """How many requests were made for each output since the last look."""
    asked = {request.request_id for request in engine.take()}
    return Counter(p.name for p in shard.spec.prompts for row in shard.replies(p.name) if row["request_id"] in asked)


def test_each_output_is_asked_and_a_stage_gets_the_record_and_the_text_before_it(tmp_path):
    shard, engine = make_shard(tmp_path, 6, TITLES, prompts=PROMPTS), Scripted()
    shard.captions(engine)
    lines = [request for request in engine.asked if "One line" in request.text]
    assert outputs(shard, engine) == {"caption": 2, "tags": 2, "line": 6}
    assert all(request.image is None and request.json_keys == () for request in lines)
    assert any("title 3 for: A fine picture" in request.text and "cell 4" in request.text for request in lines)
    row = shard.replies("line")[0]
    assert row["prompt_sha256s"] == [prompt_sha256(next(r.text for r in lines if r.request_id == row["request_id"]))]


def test_a_text_only_stage_reads_no_pictures(tmp_path):
    shard, engine = make_shard(tmp_path, 6, TITLES, prompts=PROMPTS[:1]), Scripted()
    shard.captions(engine)
    shutil.rmtree(shard.tar.parent)
    for tar in Path(shard.layout.grids_folder(shard.key)).glob("*.tar"):
        tar.unlink()
    engine.take()
    shard.options["prompts"] = [PROMPTS[0], PROMPTS[2]]
    shard.captions(engine)
    assert outputs(shard, engine) == {"line": 6}


def test_a_changed_prompt_redoes_that_output_and_what_uses_it(tmp_path):
    shard, engine = make_shard(tmp_path, 6, TITLES, prompts=PROMPTS), Scripted()
    shard.captions(engine)
    engine.take()
    shard.options["prompts"] = [PROMPTS[0], {**PROMPTS[1], "text": "Other tags."}, PROMPTS[2]]
    shard.captions(engine)
    assert outputs(shard, engine) == {"tags": 2}
    shard.options["prompts"] = [{**PROMPTS[0], "version": 2}, *PROMPTS[1:]]
    shard.captions(engine)
    assert outputs(shard, engine) == {"caption": 2, "line": 6}
    shard.options["prompts"] = [*PROMPTS[:2], {**PROMPTS[2], "sampling": {"temperature": 0.1}}]
    shard.captions(engine)
    assert outputs(shard, engine) == {"line": 6}
    shard.options["prompts"] = PROMPTS
    shard.captions(engine)
    assert outputs(shard, engine) == {}  # back to what was paid for
    shard.options["filters"] = {"min_chars": 5}
    shard.captions(engine)
    assert outputs(shard, engine) == {}


def test_a_stage_is_not_asked_where_the_output_it_uses_is_missing(tmp_path):
    def answer(request: ChatRequest) -> str:
        return '{"1": "A text that is fine", "2": ""}' if request.json_keys else good(request)

    shard, engine = make_shard(tmp_path, 2, TITLES, prompts=[PROMPTS[0], PROMPTS[2]]), Scripted(answer)
    shard.captions(engine)
    assert outputs(shard, engine) == {"caption": 1, "line": 1}
    assert shard.pending() == 0


def test_a_stage_follows_the_newest_reply_of_what_it_uses(tmp_path):
    def answer(request: ChatRequest) -> str:
        return '{"1": "A text that is fine", "2": ""}' if request.json_keys else good(request)

    shard, engine = make_shard(tmp_path, 2, TITLES, prompts=[PROMPTS[0], PROMPTS[2]]), Scripted(answer)
    shard.captions(engine, "run-a")
    engine.take()
    shard.recaptions(engine, "run-a")  # the second cell gets a caption now, so its line can be asked
    assert outputs(shard, engine) == {"caption": 1, "line": 1}
    assert shard.pending() == 0


def test_a_text_refused_by_a_filter_is_used_all_the_same(tmp_path):
    shard, engine = make_shard(tmp_path, 1, TITLES, prompts=[PROMPTS[0], PROMPTS[2]], grid=ONE), Scripted(lambda request: "Ok.")
    shard.captions(engine)
    assert [request.text for request in engine.asked][1] == "One line about title 0 for: Ok."


def test_missing_fields_are_empty_and_counted(tmp_path):
    shard, engine = (
        make_shard(tmp_path, 3, {"p000": {"title": "T"}}, prompts=[{"text": "About {record.json.title}."}], grid=ONE),
        Scripted(),
    )
    assert shard.captions(engine).metadata()["missing_fields"] == 2
    assert sorted(request.text for request in engine.asked) == ["About .", "About .", "About T."]


def test_nothing_but_the_placeholders_is_evaluated(tmp_path):
    texts = {"p000": {"title": "{output.caption} {record.id} {0.__class__} \ud83d"}}
    shard, engine = make_shard(tmp_path, 1, texts, prompts=[{"text": "{record.json.title}{x}%s"}], grid=ONE), Scripted()
    shard.captions(engine)
    assert engine.asked[0].text.startswith("{output.caption} {record.id} {0.__class__} ") and engine.asked[0].text.endswith(
        "{x}%s"
    )
    assert shard.pending() == 0


def test_a_duplicate_with_another_text_is_asked_by_itself_as_a_single_picture(tmp_path):
    shard = Shard(tmp_path, {"prompts": [{"text": "About {record.json.t}."}]})
    texts = {"a": {"t": "x"}, "b": {"t": "x"}, "c": {"t": "y"}, "d": {"t": "z"}}
    write_tar(shard.tar, [("a", jpeg(1)), ("b", jpeg(1)), ("c", jpeg(1)), ("d", jpeg(2))], texts)
    engine = Scripted()
    shard.prepare().captions(engine)
    asked = {tuple(row["record_ids"]): row["grid_id"] is not None for row in shard.replies()}
    assert asked == {("shard-a.tar#a.jpg", "shard-a.tar#d.jpg"): True, ("shard-a.tar#c.jpg",): False}


def test_a_duplicate_shares_the_text_of_its_first_copy_with_later_stages(tmp_path):
    prompts = [{"text": "Describe."}, {"name": "line", "text": "{record.json.t}: {output.caption}", "image": False}]
    shard = Shard(tmp_path, {"prompts": prompts, "grid": ONE})
    write_tar(shard.tar, [("a", jpeg(1)), ("b", jpeg(1)), ("c", jpeg(1))], {"a": {"t": "x"}, "b": {"t": "x"}, "c": {"t": "y"}})
    engine = Scripted(lambda request: "The very same." if request.image else good(request))
    shard.prepare().captions(engine)
    assert sorted(request.text for request in engine.asked if not request.image) == ["x: The very same.", "y: The very same."]


def test_a_shard_that_replaces_another_keeps_what_was_paid_for(tmp_path):
    """One picture of the tar is another one now: only its own grid cell is asked, and the others' replies count."""
    old = make_shard(tmp_path, 8)
    engine = Scripted()
    old.captions(engine)
    engine.take()
    new = Shard(tmp_path, key="shard-a-g1")
    write_tar(old.tar, ((f"p{n:03d}", jpeg(99 if n == 5 else n)) for n in range(8)))
    _prepare_over(new, old)
    new.captions(engine)
    assert [request.json_keys for request in engine.asked] == [()]
    assert [row["record_ids"] for row in new.replies()] == [["shard-a.tar#p005.jpg"]]
    assert new.pending() == 0


def _prepare_over(new: Shard, old: Shard) -> None:
    """Prepares `new` from the old shard's tar, and notes in its manifest what it replaces."""
    from caption_assets.core.pictures.gridding import build_grids
    from caption_assets.core.plan.plans import PlanEntry
    from caption_assets.core.sources import read_manifest

    info = new.objects.head(str(old.tar))
    entry = PlanEntry(new.key, info.uri, "webdataset", 0, None, 0, info.size, info.size, info.etag, 1, old.key)
    stream = read_manifest(new.objects, new.spec, [entry]).tagged(replaces=old.key)
    manifest = write_parquet(new.objects, new.layout.manifest(new.key), stream)
    write_parquet(new.objects, new.layout.mapping(new.key), build_grids(new.objects, new.layout, new.spec, new.key, manifest))


def test_a_passing_fault_upstream_is_no_text(tmp_path):
    prompts = [PROMPTS[0], PROMPTS[2]]
    shard = make_shard(tmp_path, 2, TITLES, prompts=prompts, grid=ONE)
    engine = Scripted(lambda request: reply(request, None, "timeout: slow") if request.image else good(request))
    shard.captions(engine, "run-a")
    assert outputs(shard, engine) == {"caption": 2}
    engine.answer = good
    assert shard.pending() == 4
    shard.captions(engine, "run-b")
    assert outputs(shard, engine) == {"caption": 2, "line": 2}

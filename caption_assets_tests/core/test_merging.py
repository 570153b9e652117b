"""merged and failed: what the user gets of each record, whatever was said about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from caption_assets.core.merging import read_pair
from caption_assets_tests.core.mergekit import ONE, Collection, one_shard, words
from caption_assets_tests.core.shardkit import jpeg, write_tar

SHORT = "A cat."


def test_a_caption_belongs_to_its_slot_and_a_gap_shifts_nothing(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path, grid={"rows": 2, "cols": 2, "cell_size": 32, "gap": 2, "label_font_size": 8})
    records = [f"p{n}.jpg" for n in range(4)]
    said = {"1": words("one"), "2": words("two"), "4": words("four")}
    collection.say(shard, [collection.reply(records, said)])
    outcome = collection.merge(shard)
    assert outcome.texts() == {"p0.jpg": words("one"), "p1.jpg": words("two"), "p3.jpg": words("four")}
    assert outcome.reasons() == {"p2.jpg": "missing_slot"}
    assert outcome.failed[0]["retryable"] is True and outcome.failed[0]["attempt"] == 1
    assert outcome.merged[2]["slot"] == 4 and outcome.merged[2]["grid_id"]


def test_valid_beats_later_failures_and_the_later_of_two_valid_wins(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path)
    p0, p1, p2, p3 = ([f"p{n}.jpg"] for n in range(4))
    first = [collection.reply(p, words("first")) for p in (p0, p1)] + [collection.reply(p, SHORT) for p in (p2, p3)]
    later = [
        collection.reply(p0, SHORT),
        collection.reply(p1, words("second"), attempt=2),
        collection.reply(p2, words("at last"), attempt=2),
        collection.reply(p3, None, error="timeout: 300 s", finish_reason=None),
    ]
    collection.say(shard, later)  # the order of files is not the order of sending
    collection.say(shard, first)
    outcome = collection.merge(shard)
    assert outcome.texts() == {"p0.jpg": words("first"), "p1.jpg": words("second"), "p2.jpg": words("at last")}
    assert outcome.reasons() == {"p3.jpg": "timeout"}
    assert outcome.failed[0]["attempt"] == 2
    assert outcome.merged[1]["caption_info"]["attempt"] == 2
    assert outcome.result.counts["transient"] == 1


def test_the_reason_of_a_refused_text_stands_over_later_answers_that_cannot_be_read(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path)
    p0, p1, p2, p3 = ([f"p{n}.jpg"] for n in range(4))
    numbered = '{"2": "A cat on a mat.", "3": "A dog in a field."}'
    collection.say(shard, [collection.reply(p, "I cannot help with this picture.") for p in (p0, p1, p2)])
    collection.say(shard, [collection.reply(p, numbered, attempt=2) for p in (p0, p1, p3)])
    collection.say(shard, [collection.reply(p1, SHORT, attempt=3), collection.reply(p2, None, error="model_error: 500")])
    outcome = collection.merge(shard)
    assert outcome.reasons() == {"p0.jpg": "refusal", "p1.jpg": "too_short", "p2.jpg": "model_error", "p3.jpg": "missing_slot"}
    assert outcome.result.counts["transient"] == 1


def test_an_answer_that_repeats_the_grids_to_the_letter_says_nothing_of_its_picture(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path)
    pictures = [f"p{n}.jpg" for n in range(4)]
    grid = json.dumps({"1": words("p0"), "2": SHORT, "4": words("p3")})
    collection.say(shard, [collection.reply(pictures, grid)])
    collection.say(shard, [collection.reply([p], grid, attempt=2) for p in pictures[1:3]])
    outcome = collection.merge(shard)
    assert outcome.texts() == {"p0.jpg": words("p0"), "p3.jpg": words("p3")}
    assert outcome.reasons() == {"p1.jpg": "too_short", "p2.jpg": "missing_slot"}
    collection.say(shard, [collection.reply(["p2.jpg"], json.dumps({"1": words("p2"), "2": words("?")}), attempt=3)])
    assert collection.merge(shard).texts()["p2.jpg"] == words("p2")


def test_revoked_replies_other_recipes_and_other_prompts_do_not_count(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path)
    collection.caption_all(shard)
    lies = collection.say(shard, [collection.reply(["p0.jpg"], words("a lie"))])
    collection.revoke(shard, lies)
    collection.say(shard, [collection.reply(["p1.jpg"], words("asked otherwise"), asked="Another text.")])
    assert collection.merge(shard).texts() == {f"p{n}.jpg": words(f"p{n}.jpg") for n in range(4)}
    collection.options["sampling"] = {"temperature": 0.1}
    outcome = collection.merge(shard, publish=False)
    assert outcome.result.problems == ["4 records have no reply for caption: materialize captions again"]


def test_a_shard_that_was_not_answered_whole_is_not_merged(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path)
    collection.say(shard, [collection.reply([f"p{n}.jpg"], words(str(n))) for n in range(3)])
    assert collection.merge(shard).result.problems == ["1 records have no reply for caption: materialize captions again"]
    assert read_pair(collection.objects, collection.layout, shard) is None


def test_broken_pictures_fail_with_their_own_reasons(tmp_path: Path) -> None:
    collection = Collection(tmp_path, {"grid": ONE})
    collection.add({"a.jpg": jpeg(1), "b.jpg": b"", "c.jpg": jpeg(2)[:-200], "d.jpg": b"<html>not found</html>"})
    (shard,) = collection.prepare()
    collection.caption_all(shard)
    outcome = collection.merge(shard)
    assert outcome.texts() == {"a.jpg": words("a.jpg")}
    assert outcome.reasons() == {"b.jpg": "empty_file", "c.jpg": "decode_error", "d.jpg": "not_an_image"}
    assert [(row["retryable"], row["attempt"]) for row in outcome.failed] == [(False, 0)] * 3
    assert outcome.result.reasons["empty_file"][0] == 1 and outcome.result.reasons["empty_file"][1].startswith("b.jpg: ")


def test_duplicates_share_caption_and_failure(tmp_path: Path) -> None:
    collection = Collection(tmp_path, {"grid": ONE})
    collection.add({"a.jpg": jpeg(1), "b.jpg": jpeg(1), "c.jpg": jpeg(2), "d.jpg": jpeg(2)})
    (shard,) = collection.prepare()
    collection.say(shard, [collection.reply(["a.jpg"], words("both")), collection.reply(["c.jpg"], SHORT)])
    outcome = collection.merge(shard)
    assert outcome.texts() == {"a.jpg": words("both"), "b.jpg": words("both")}
    assert outcome.merged[1]["duplicate_of"] == "a.jpg"
    assert outcome.merged[1]["caption_info"] == outcome.merged[0]["caption_info"]
    assert outcome.reasons() == {"c.jpg": "too_short", "d.jpg": "too_short"}
    assert outcome.result.counts["duplicates"] == 2


@pytest.mark.parametrize("field", ["json.title", "text"])
def test_a_duplicate_with_another_prompt_has_its_own_reply(tmp_path: Path, field: str) -> None:
    prompts = [{"text": f"Describe {{record.{field}}} here."}]
    collection = Collection(tmp_path, {"prompts": prompts, "grid": ONE, "fields": {"text": "title"}})
    texts = {"a": {"title": "x"}, "b": {"title": "x"}, "c": {"title": "y"}}
    write_tar(collection.source / "t.tar", [("a", jpeg(1)), ("b", jpeg(1)), ("c", jpeg(1))], texts)
    (shard,) = collection.prepare()
    collection.say(
        shard,
        [
            collection.reply(["t.tar#a.jpg"], words("x"), asked="Describe x here."),
            collection.reply(["t.tar#c.jpg"], words("y"), asked="Describe y here."),
        ],
    )
    outcome = collection.merge(shard)
    assert outcome.texts() == {"t.tar#a.jpg": words("x"), "t.tar#b.jpg": words("x"), "t.tar#c.jpg": words("y")}


STAGES = [
    {"name": "caption", "text": "Describe the picture."},
    {"name": "title", "text": "A title for: {output.caption}", "image": False, "filters": {"min_chars": 3}},
]


def test_a_stage_counts_only_replies_that_were_asked_with_the_text_of_now(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path, count=3, prompts=STAGES)
    for number in range(3):
        collection.say(shard, [collection.reply([f"p{number}.jpg"], words(str(number)))])
        asked = f"A title for: {words(str(number))}"
        collection.say(shard, [collection.reply([f"p{number}.jpg"], f"Title {number}", output="title", asked=asked)])
    outcome = collection.merge(shard)
    assert outcome.texts("title") == {f"p{n}.jpg": f"Title {n}" for n in range(3)}
    assert outcome.result.counts["title_captioned"] == 3
    # a newer caption: its title has to be asked anew
    collection.say(shard, [collection.reply(["p1.jpg"], words("other"), attempt=2)])
    assert collection.merge(shard, publish=False).result.problems == [
        "1 records have no reply for title: materialize captions again"
    ]


def test_what_uses_a_refused_output_is_refused_with_the_same_reason(tmp_path: Path) -> None:
    prompts = [*STAGES, {"name": "colours", "text": "Name the colours."}]
    collection, shard = one_shard(tmp_path, count=3, prompts=prompts)
    for number, said in enumerate((words("0"), "I'm sorry, but I can't help with identifying people in this picture.", None)):
        record = [f"p{number}.jpg"]
        finish = {} if said else {"finish_reason": "length"}
        collection.say(shard, [collection.reply(record, said, **finish)])
        if said:
            asked = f"A title for: {said}"
            collection.say(shard, [collection.reply(record, "A fine title", output="title", asked=asked)])
        collection.say(shard, [collection.reply(record, words("colours"), output="colours")])
    outcome = collection.merge(shard)
    assert [row["caption_reason"] for row in outcome.merged] == [None, "refusal", "truncated_output"]
    assert [row["title_reason"] for row in outcome.merged] == [None, "refusal", "truncated_output"]
    assert [row["title"] for row in outcome.merged] == ["A fine title", None, None]
    assert all(row["colours"] == words("colours") for row in outcome.merged)
    assert outcome.result.reasons["refusal"][0] == 1


def test_switching_a_filter_changes_the_tables_and_asks_nothing(tmp_path: Path) -> None:
    collection, shard = one_shard(tmp_path, count=2)
    collection.say(shard, [collection.reply(["p0.jpg"], SHORT), collection.reply(["p1.jpg"], words("1"))])
    before = collection.merge(shard)
    assert before.reasons() == {"p0.jpg": "too_short"}
    collection.options["filters"] = {"min_chars": 0}
    after = collection.merge(shard)
    assert after.texts() == {"p0.jpg": SHORT, "p1.jpg": words("1")}
    assert before.result.data_version.split(".")[::2] == after.result.data_version.split(".")[::2]
    assert before.result.data_version != after.result.data_version


def test_replies_of_a_replaced_shard_count_for_equal_pictures(tmp_path: Path) -> None:
    collection = Collection(tmp_path, {"grid": ONE})
    write_tar(collection.source / "t.tar", [("a", jpeg(1)), ("b", jpeg(2))])
    (old,) = collection.prepare()
    collection.caption_all(old)
    write_tar(collection.source / "t.tar", [("a", jpeg(1)), ("b", jpeg(9))])
    (new,) = collection.prepare(accept_changed=f"{tmp_path}/source/t.tar")
    assert collection.merge(new).result.problems == ["1 records have no reply for caption: materialize captions again"]
    collection.say(new, [collection.reply(["t.tar#b.jpg"], words("the new one"))])
    assert collection.merge(new).texts() == {"t.tar#a.jpg": words("t.tar#a.jpg"), "t.tar#b.jpg": words("the new one")}

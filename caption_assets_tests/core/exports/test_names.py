"""Keys and names of exported files."""

from __future__ import annotations

import re
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st
from webdataset.tariterators import base_plus_ext

from caption_assets.core.exports.names import LONGEST_PART, mirror_path, sample_key, split_record, stem

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(NAMES)
def test_a_key_is_read_back_whole_and_says_its_record(record_id: str) -> None:
    key = sample_key(record_id)
    assert base_plus_ext(f"{key}.jpg") == (key, "jpg")
    assert not re.search(r'[.\\:*?"<>|\x00-\x1f]', key) and not key.startswith(("/", "__"))
    if "//" not in record_id and not record_id.startswith("/") and not record_id.endswith("/"):
        assert unquote(key) == record_id


@given(NAMES, NAMES)
def test_different_records_have_different_keys(one: str, other: str) -> None:
    assert (sample_key(one) == sample_key(other)) == (one == other)


def test_keys_of_very_long_names_fit_a_disk_and_differ() -> None:
    one, other = "a/" + "猫" * 300 + "1.jpg", "a/" + "猫" * 300 + "2.jpg"
    assert len(sample_key(one).split("/")[1].encode()) <= LONGEST_PART and sample_key(one) != sample_key(other)


def test_records_fall_into_path_and_member() -> None:
    assert split_record("a/t.tar#x/1.jpg", "/data/a/t.tar") == ("a/t.tar", "x/1.jpg")
    assert split_record("c#d.jsonl#12", "s3://b/c#d.jsonl") == ("c#d.jsonl", "12")
    assert split_record("a#b.jpg", "/data/a#b.jpg") == ("a#b.jpg", None)
    assert split_record("s3://b/x.tar#1.jpg", "s3://b/x.tar") == ("s3://b/x.tar", "1.jpg")


def test_a_mirror_never_leads_out_of_its_folder() -> None:
    assert mirror_path("t.tar#../../etc/x.jpg", "/data/t.tar") == "t.tar/%2E%2E/%2E%2E/etc/x.jpg"
    assert mirror_path("t.tar#/etc/x.jpg", "/data/t.tar") == "t.tar/%/etc/x.jpg"
    assert mirror_path(".export/x.jpg", "/data/.export/x.jpg") == "%2Eexport/x.jpg"
    assert mirror_path("c.jsonl#12", "/data/c.jsonl") == "c.jsonl/000000012"


def test_stems() -> None:
    assert [stem(p) for p in ("a/b.jpg", "a.b/c", "a/.hidden", "x.tar.gz")] == ["a/b", "a.b/c", "a/.hidden", "x.tar"]

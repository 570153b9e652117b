"""Which folders there are, without listing what lies in them: on disk and in S3."""

from pathlib import Path

import pytest

from caption_assets.core.objectstore import ObjectStore
from caption_assets_tests.servers import S3Server, set_test_keys
from caption_assets_tests.stubs.s3_server import FakeS3

FILES = ["a/x/1", "a/x/2", "b c/1", "file", "shard-1/1", "shard-10/1", "ü/1"]
FOLDERS = ["a", "b c", "shard-1", "shard-10", "ü"]


def check(objects: ObjectStore, root: str) -> None:
    for name in FILES:
        objects.put(f"{root}/set/{name}", b"x")
    assert sorted(objects.folders(f"{root}/set/")) == FOLDERS
    assert list(objects.folders(f"{root}/none/")) == []


def test_on_disk_without_those_that_are_empty(tmp_path: Path) -> None:
    (tmp_path / "set" / "empty" / "inner").mkdir(parents=True)
    check(ObjectStore(), str(tmp_path))


def test_in_s3(s3_server: S3Server) -> None:
    check(s3_server.store(), f"s3://{s3_server.make_bucket()}")


def test_page_by_page_and_nothing_else_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    set_test_keys(monkeypatch)
    keys = [f"set/s{shard:02d}/{chunk}" for shard in range(25) for chunk in range(40)]
    with FakeS3(dict.fromkeys(keys, b"x"), page=10) as s3:
        store = s3.store()
        s3.log.clear()
        assert list(store.folders(f"s3://{s3.bucket}/set/")) == [f"s{shard:02d}" for shard in range(25)]
        assert 3 <= len(s3.asked("LIST")) <= 4  # one more where the bucket is met for the first time

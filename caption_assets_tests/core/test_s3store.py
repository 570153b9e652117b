"""What the user gets from objects in S3, on real servers."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa
import pytest

from caption_assets.config import BucketConfig
from caption_assets.core.objectstore import ObjectError, ObjectMissing, ObjectStore
from caption_assets.core.storage.objects import is_marker
from caption_assets.core.tables import RecordStream, open_parquet, table, write_parquet
from caption_assets_tests.servers import S3Server

KEYS = [
    "a b.jpg", "a+b.jpg", "a%20b.jpg", "100%.jpg", "seg#1.jpg", "q?v=1&w=2.jpg", "写真 é.jpg", "e\u0301.jpg", "=;,@:$&.jpg",
    "tilde~(1)!'*.jpg", "back\\slash.jpg", "pipe|^`{}[]<>\".jpg", "%2F.jpg", "+.jpg",
]  # fmt: skip


@pytest.fixture
def root(s3_server: S3Server) -> str:
    return f"s3://{s3_server.make_bucket()}"


@pytest.fixture
def objects(s3_server: S3Server) -> ObjectStore:
    return s3_server.store()


@pytest.mark.parametrize("key", KEYS)
def test_keys_are_literal(objects: ObjectStore, root: str, key: str) -> None:
    uri, data = f"{root}/set/{key}", key.encode() * 3
    objects.put(uri, data)
    assert objects.read(uri) == data
    assert objects.read(uri, 2, 4) == data[2:6]
    with objects.open(uri, 1) as stream:
        assert stream.read() == data[1:]
    assert objects.head(uri).size == len(data)
    assert [info.uri for info in objects.list(f"{root}/set/")] == [uri]
    objects.delete(uri)
    assert not objects.exists(uri)


ODD_KEYS = ["set//dbl.jpg", "/lead.jpg", "trail.jpg/", "a/./b.jpg", "a/../c.jpg", "..", "tab\there.jpg", "bell\x07.jpg", "//"]


def test_keys_that_are_no_paths_are_literal_too(moto_server: S3Server) -> None:
    objects, root = moto_server.store(), f"s3://{moto_server.make_bucket()}"
    for key in [*ODD_KEYS, "lead.jpg", "trail.jpg", "set/dbl.jpg"]:
        objects.put(f"{root}/{key}", key.encode())
    for key in ODD_KEYS:
        assert objects.read(f"{root}/{key}") == key.encode()
        assert objects.read(f"{root}/{key}", 1, 1) == key.encode()[1:2]
        assert objects.head(f"{root}/{key}").size == len(key)
    for key in ODD_KEYS:
        objects.delete(f"{root}/{key}")
    assert [info.uri for info in objects.list(root + "/")] == [
        f"{root}/{key}" for key in ("lead.jpg", "set/dbl.jpg", "trail.jpg")
    ]


def test_names_that_differ_by_encoding_only_are_different_objects(objects: ObjectStore, root: str) -> None:
    for key in KEYS:
        objects.put(f"{root}/{key}", key.encode())
    assert {info.uri for info in objects.list(f"{root}/")} == {f"{root}/{key}" for key in KEYS}
    got = objects.read_many([(f"{root}/{key}", 0, None) for key in KEYS])
    assert list(got) == [key.encode() for key in KEYS]


def test_ranges(objects: ObjectStore, root: str) -> None:
    uri, data = f"{root}/x.bin", os.urandom(1000)
    objects.put(uri, data)
    assert objects.read(uri, 10, 5) == data[10:15]
    assert objects.read(uri, 990) == data[990:]
    assert objects.read(uri, 990, 100) == data[990:], "a range past the end gives what there is"
    assert objects.read(uri, 1000, 10) == objects.read(uri, 5000) == objects.read(uri, 3, 0) == b""
    for offset, length in ((0, None), (10, 5), (990, 100), (1000, 10), (5000, None), (3, 0)):
        with objects.open(uri, offset, length) as stream:
            assert stream.read() == data[offset:][:length]
    objects.put(f"{root}/empty", b"")
    assert objects.read(f"{root}/empty") == objects.read(f"{root}/empty", 0, 5) == b""


def test_what_is_not_there(objects: ObjectStore, root: str) -> None:
    for uri in (f"{root}/nope", f"{root}/lone\ud83d", f"{root}/{'x' * 1100}", f"{root}/", "s3://no-such-bucket-here/x"):
        for ask in (objects.read, objects.head, objects.open):
            with pytest.raises(ObjectMissing):
                ask(uri)
    objects.delete(f"{root}/nope")
    assert list(objects.list(f"{root}/nope")) == []
    with pytest.raises(ObjectMissing, match="no-such-bucket-here does not exist"):
        list(objects.list("s3://no-such-bucket-here/"))


def test_a_listing_is_in_order_and_can_be_taken_up(objects: ObjectStore, root: str) -> None:
    names = [f"{root}/set/{name}" for name in ("A", "Z", "a-b", "a.b", "a/b", "a/c/d", "ab", "é", "写", "\U0001f600")]
    assert names == sorted(names)
    for uri in [f"{root}/other", *reversed(names)]:
        objects.put(uri, b"x")
    assert [info.uri for info in objects.list(f"{root}/set/")] == names
    for n, uri in enumerate(names):
        assert [info.uri for info in objects.list(f"{root}/set/", start_after=uri)] == names[n + 1 :]
    assert [info.uri for info in objects.list(f"{root}/set/a")] == names[2:7]


def test_listing_and_head_agree(objects: ObjectStore, root: str) -> None:
    objects.put(f"{root}/a", b"abc")
    assert list(objects.list(f"{root}/a")) == [objects.head(f"{root}/a")]


def test_a_large_file_goes_up_in_parts_and_is_moved(objects: ObjectStore, root: str, tmp_path: Path) -> None:
    path = tmp_path / "grids.tar"
    data = random.Random(1).randbytes(40 << 20)
    path.write_bytes(data)
    objects.put_file(f"{root}/grids.tar", path)
    assert not path.exists()
    with objects.open(f"{root}/grids.tar") as stream:
        assert stream.read() == data
    assert objects.read(f"{root}/grids.tar", 33 << 20, 5) == data[33 << 20 :][:5]


def test_put_new_without_conditional_puts_keeps_what_is_there(objects: ObjectStore, root: str) -> None:
    assert objects.put_new(f"{root}/gen-0", b"one")
    assert not objects.put_new(f"{root}/gen-0", b"two")
    assert objects.read(f"{root}/gen-0") == b"one"
    assert objects.of(root).conditional_puts(root) is False


def test_put_new_uses_conditional_puts_where_the_store_has_them(moto_server: S3Server) -> None:
    objects, root = moto_server.store(), f"s3://{moto_server.make_bucket()}"
    assert objects.of(root).conditional_puts(root) is None
    assert objects.put_new(f"{root}/gen-0", b"one")
    assert not objects.put_new(f"{root}/gen-0", b"two")
    assert objects.read(f"{root}/gen-0") == b"one"
    assert objects.of(root).conditional_puts(root) is True


def test_tables_are_written_and_read_in_s3(objects: ObjectStore, root: str) -> None:
    schema = pa.schema([("record_id", pa.string()), ("n", pa.int64())])
    batches = [
        pa.RecordBatch.from_pylist([{"record_id": f"r{i}", "n": i} for i in range(k, k + 500)], schema)
        for k in range(0, 5000, 500)
    ]
    written = write_parquet(
        objects, f"{root}/photos/manifest/s.parquet", RecordStream(schema, iter(batches), lambda: {"run_id": "r"}), 1000
    )
    found = table(objects, written.uri)
    assert (found.rows, found.metadata["run_id"]) == (5000, "r")
    assert [n for batch in found.batches(objects, ["n"]) for n in batch["n"].to_pylist()] == list(range(5000))
    with open_parquet(objects, written.uri) as file:
        assert file.read_row_group(3)["record_id"][0].as_py() == "r3000"
    with pytest.raises(ObjectMissing):
        table(objects, f"{root}/nope.parquet")


def test_nothing_appears_when_writing_a_table_fails(objects: ObjectStore, root: str) -> None:
    def broken() -> object:
        yield pa.RecordBatch.from_pylist([{"n": 1}])
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="the source broke"):
        write_parquet(objects, f"{root}/t.parquet", RecordStream(pa.schema([("n", pa.int64())]), broken()))
    assert list(objects.list(root + "/")) == []


def test_folder_markers_are_listed_and_known_as_such(objects: ObjectStore, root: str) -> None:
    objects.put(f"{root}/set/", b"")
    objects.put(f"{root}/set/a.jpg", b"x")
    assert [(info.uri[len(root) :], is_marker(info)) for info in objects.list(f"{root}/set/")] == [
        ("/set/", True),
        ("/set/a.jpg", False),
    ]


def test_wrong_keys_are_refused_with_bucket_and_what_to_check(
    s3_server: S3Server, root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "credentials").write_text("[wrong]\naws_access_key_id = test-access\naws_secret_access_key = hush-hush\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    objects = s3_server.store(profile="wrong")
    for ask in (objects.read, objects.head, objects.open, objects.exists):
        with pytest.raises(ObjectError, match="refused: 403") as caught:
            ask(f"{root}/x.jpg")
        assert caught.value.reason == "s3_error"
        assert f"{root}/x.jpg" in str(caught.value)
        assert "hush" not in str(caught.value)
    with pytest.raises(ObjectError, match=r"profile \(nobody\)"):
        s3_server.store(profile="nobody").read(f"{root}/x.jpg")


def test_each_bucket_has_its_own_settings(s3_server: S3Server, moto_server: S3Server) -> None:
    here, there = s3_server.make_bucket(), moto_server.make_bucket()
    objects = s3_server.store(buckets={there: BucketConfig(endpoint_url=moto_server.endpoint)})
    objects.put(f"s3://{here}/x", b"gateway")
    objects.put(f"s3://{there}/x", b"moto")
    assert s3_server.store().read(f"s3://{here}/x") == b"gateway"
    assert moto_server.store().read(f"s3://{there}/x") == b"moto"

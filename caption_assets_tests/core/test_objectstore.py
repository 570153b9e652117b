"""What the user gets from local files as objects, and from any store through `ObjectStore`."""

from __future__ import annotations

import errno
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caption_assets.core.objectstore import NotAFile, ObjectError, ObjectMissing, ObjectStore
from caption_assets.core.storage import localstore

NAMES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0/"), min_size=1, max_size=6)


@pytest.fixture
def objects() -> ObjectStore:
    return ObjectStore()


def listed(objects: ObjectStore, prefix: Path | str, start_after: str | None = None) -> list[str]:
    return [info.uri for info in objects.list(str(prefix), start_after)]


@settings(max_examples=60, deadline=None)
@given(st.sets(st.lists(NAMES, min_size=1, max_size=4).map("/".join), max_size=12), st.randoms(use_true_random=False))
def test_a_listing_is_in_plain_order_of_whole_paths_and_can_be_taken_up_anywhere(
    tmp_path_factory: pytest.TempPathFactory, paths: set[str], rng: random.Random
) -> None:
    objects, root = ObjectStore(), tmp_path_factory.mktemp("tree")
    made = []
    for path in sorted(paths):
        uri = f"{root}/{path}"
        if not {".", ".."} & set(path.split("/")) and not any(
            other.startswith(uri + "/") or uri.startswith(other + "/") for other in made
        ):
            objects.put(uri, b"x")
            made.append(uri)
    assert listed(objects, root) == sorted(made)
    assert listed(objects, f"{root}/") == sorted(made)
    for after in [*made, *(f"{root}/{rng.choice('aZ/é.')}" for _ in range(3)), f"{root}/zz/zz"]:
        assert listed(objects, root, start_after=after) == [uri for uri in sorted(made) if uri > after]


def test_a_folder_sorts_as_its_name_with_a_slash(objects: ObjectStore, tmp_path: Path) -> None:
    for path in ("a.jpg", "a/b", "a-b", "a0", "a/b.c/d", "a/b-c"):
        objects.put(f"{tmp_path}/{path}", b"")
    assert listed(objects, tmp_path) == [f"{tmp_path}/{p}" for p in ("a-b", "a.jpg", "a/b", "a/b-c", "a/b.c/d", "a0")]


def test_links_are_followed_but_never_in_a_circle(objects: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "up").symlink_to("..")
    (tmp_path / "real" / "self").symlink_to("self")
    (tmp_path / "file").symlink_to("real/x")
    assert listed(objects, tmp_path) == [f"{tmp_path}/{p}" for p in ("file", "link/self", "link/x", "real/self", "real/x")]
    assert objects.read(f"{tmp_path}/link/x") == b"x"
    with pytest.raises(NotAFile, match="real/self: is not a file"):
        objects.read(f"{tmp_path}/real/self")


def test_what_is_no_file_is_listed_and_found_out_by_reading_it(objects: ObjectStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "dangling.jpg").symlink_to("gone")
    assert listed(objects, tmp_path) == [f"{tmp_path}/dangling.jpg", f"{tmp_path}/pipe.jpg"]
    for ask in (objects.read, objects.open):
        with pytest.raises(NotAFile):
            ask(f"{tmp_path}/pipe.jpg")
        with pytest.raises(ObjectMissing):
            ask(f"{tmp_path}/dangling.jpg")


def test_own_temporary_files_and_missing_folders_are_not_listed(objects: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / f"{localstore.TEMPORARY}1234").write_bytes(b"half")
    assert listed(objects, tmp_path) == listed(objects, tmp_path / "nope") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_may_not_be_read_is_an_error_that_names_it(objects: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    (tmp_path / "x").chmod(0)
    with pytest.raises(ObjectError, match="x: cannot be read: Permission denied"):
        objects.read(f"{tmp_path}/x")
    (tmp_path / "d").mkdir(0)
    with pytest.raises(ObjectError, match="d/: the folder cannot be listed: Permission denied"):
        listed(objects, tmp_path)


def test_an_unreadable_folder_is_an_error_not_an_empty_one(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ObjectError, match="the folder cannot be listed: Permission denied"):
        listed(objects, tmp_path)


def test_reads_and_streams_of_parts(objects: ObjectStore, tmp_path: Path) -> None:
    uri, data = f"{tmp_path}/x", os.urandom(5000)
    objects.put(uri, data)
    for offset, length in ((0, None), (10, 5), (10, None), (4990, 100), (5000, 1), (9000, None), (3, 0)):
        assert objects.read(uri, offset, length) == data[offset:][:length]
        with objects.open(uri, offset, length) as stream:
            assert stream.read() == data[offset:][:length]
    assert objects.head(uri).size == 5000
    assert list(objects.list(str(tmp_path))) == [objects.head(uri)]


def test_what_is_not_there_is_missing(objects: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name in ("nope", "no/such/folder", "nul\0", "lone\ud83d", "x" * 300):
        for ask in (objects.read, objects.head, objects.open):
            with pytest.raises(ObjectMissing):
                ask(f"{tmp_path}/{name}")
        assert not objects.exists(f"{tmp_path}/{name}")
    for ask in (objects.read, objects.head, objects.open):
        for uri in (str(tmp_path), f"{tmp_path}/file/below"):
            with pytest.raises(NotAFile):
                ask(uri)
    objects.delete(f"{tmp_path}/nope")


@pytest.mark.parametrize("made", ["a file", "a link that leads nowhere", "a link that leads nowhere, to itself"])
def test_what_stands_where_a_folder_should_be_is_named(objects: ObjectStore, tmp_path: Path, made: str) -> None:
    place, file = tmp_path / "store", tmp_path / "x"
    file.write_bytes(b"")
    if made == "a file":
        place.write_bytes(b"")
    else:
        place.symlink_to("store" if "itself" in made else "gone")
    for put in (
        lambda uri: objects.put(uri, b""),
        lambda uri: objects.put_new(uri, b""),
        lambda uri: objects.put_file(uri, file),
    ):
        for uri in (f"{place}/x", f"{place}/d/e/x"):
            with pytest.raises(ObjectError, match=f"^{uri}: cannot be written: {place} is {made.partition(',')[0]}"):
                put(uri)
    if "itself" not in made:
        assert listed(objects, place / "d") == []


def test_a_full_disk_stays_itself_and_leaves_nothing(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for put in (objects.put, objects.put_new):
        with pytest.raises(OSError, match="No space left") as caught:
            put(f"{tmp_path}/x", b"x")
        assert caught.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == []


def test_a_put_replaces_whole_and_a_file_is_moved(objects: ObjectStore, tmp_path: Path) -> None:
    uri = f"{tmp_path}/a/b/x"
    objects.put(uri, b"one")
    objects.put(uri, b"two")
    assert objects.read(uri) == b"two"
    (tmp_path / "made").write_bytes(b"three")
    objects.put_file(uri, tmp_path / "made")
    assert objects.read(uri) == b"three"
    assert listed(objects, tmp_path) == [uri]


@pytest.mark.parametrize("links", [True, False])
def test_one_of_many_writers_wins(objects: ObjectStore, tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "this file system has no hard links")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    for round_ in range(10):
        uri, start = f"{tmp_path}/gen-{round_}", threading.Barrier(8)

        def write(n: int, uri: str = uri, start: threading.Barrier = start) -> bool:
            start.wait()
            return objects.put_new(uri, b"%d" % n * 1000)

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(write, range(8)))
        assert won.count(True) == 1
        assert objects.read(uri) == b"%d" % won.index(True) * 1000
    assert len(listed(objects, tmp_path)) == len(os.listdir(tmp_path)) == 10


def test_many_reads_come_in_order_with_errors_as_values(objects: ObjectStore, tmp_path: Path) -> None:
    for n in range(50):
        objects.put(f"{tmp_path}/{n}", b"%d" % n)
    got = list(objects.read_many(((f"{tmp_path}/{n}", 0, None) for n in range(60)), concurrency=7))
    assert got[:50] == [b"%d" % n for n in range(50)]
    assert [type(error) for error in got[50:]] == [ObjectMissing] * 10
    assert list(objects.read_many([])) == []


def test_many_reads_are_drawn_no_further_ahead_than_asked(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects.put(f"{tmp_path}/x", b"x" * 1000)
    drawn = 0

    def items() -> object:
        nonlocal drawn
        for _ in range(100):
            drawn += 1
            yield f"{tmp_path}/x", 0, None

    reads = objects.read_many(items(), concurrency=5)
    for taken in range(1, 20):
        next(reads)
        assert drawn <= taken + 5
    reads.close()
    assert drawn < 30


def test_a_fault_that_is_no_objects_stops_many_reads(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", exhausted)
    with pytest.raises(OSError, match="Too many open files"):
        list(objects.read_many([(f"{tmp_path}/x", 0, None)]))

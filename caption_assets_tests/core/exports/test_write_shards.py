"""write_shards: what any program gets that hands it samples."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from caption_assets.core.exports.tarfiles import Contents, FilePart, Sample, TarReport
from caption_assets.core.exports.tarwriting import WorkerFailed, write_shards
from caption_assets.core.faults import Fault


def samples(count: int, seed: int = 1) -> Iterator[Sample]:
    """Samples of 1-9 KB: a picture and its text."""
    chance = random.Random(seed)
    for number in range(count):
        yield Sample(f"a/{number:06d}", {"jpg": chance.randbytes(chance.randint(1000, 9000)), "txt": b"number %d" % number})


def read(folder: Path) -> dict[str, list[str]]:
    """Member names by tar."""
    return {path.name: tarfile.open(path).getnames() for path in sorted(folder.glob("*.tar"))}


@pytest.mark.parametrize("processes", [1, 2])
def test_count_and_size_are_both_kept_and_nothing_is_lost(tmp_path: Path, processes: int) -> None:
    told: list[TarReport] = []
    reports = write_shards(samples(500), str(tmp_path), maxcount=60, maxsize=250_000, processes=processes, progress=told.append)
    names = read(tmp_path)
    assert [report.name for report in reports] == list(names) == [f"shard-{n:05d}.tar" for n in range(len(names))]
    assert [name for members in names.values() for name in members] == [
        f"a/{n:06d}.{e}" for n in range(500) for e in ("jpg", "txt")
    ]
    for report in reports:
        data = (tmp_path / report.name).read_bytes()
        assert report.records == len(names[report.name]) / 2 <= 60
        assert report.bytes == len(data) <= 250_000 and report.sha256 == hashlib.sha256(data).hexdigest()
    assert sum(report.records for report in reports) == 500
    assert sorted(told, key=lambda report: report.name) == reports


def test_the_tars_are_the_same_whoever_writes_them(tmp_path: Path) -> None:
    reports = [write_shards(samples(200), str(tmp_path / str(n)), maxcount=30, processes=n) for n in (1, 2, 3)]
    assert reports[0] == reports[1] == reports[2]


def test_a_sample_larger_than_a_tar_gets_its_own(tmp_path: Path) -> None:
    items = [Sample(f"{n}", {"bin": bytes(100_000 if n == 1 else 100)}) for n in range(4)]
    reports = write_shards(items, str(tmp_path), maxsize=20_000, processes=1)
    assert [report.records for report in reports] == [1, 1, 2]


def test_no_samples_no_tars(tmp_path: Path) -> None:
    assert write_shards([], str(tmp_path)) == [] and read(tmp_path) == {}


def test_names_in_every_script_and_of_any_length(tmp_path: Path) -> None:
    keys = ["日本語/" * 20 + "猫", "x" * 99, "x" * 150, "ü" * 60, "кот на окне", "a/b/c"]
    write_shards([Sample(key, {"jpg": b"1", "txt": key.encode()}) for key in keys], str(tmp_path), processes=1)
    (names,) = read(tmp_path).values()
    assert names == [f"{key}.{e}" for key in keys for e in ("jpg", "txt")]
    listed = subprocess.run(["tar", "tf", str(tmp_path / "shard-00000.tar")], capture_output=True, check=True)
    assert len(listed.stdout.splitlines()) == 12


def test_parts_of_files_are_read_by_the_writers(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(bytes(range(256)) * 4)
    items = [Sample(f"{n}", {"bin": FilePart(str(tmp_path / "source"), 10, n)}) for n in range(20)]
    items += [Sample("gone", {"bin": FilePart(str(tmp_path / "nothing"), 10)}), Sample("end", {"bin": b"x"})]
    (report,) = write_shards(items, str(tmp_path / "out"))
    assert (report.records, report.taken) == (21, 22)
    assert report.left_out == [f"gone: object_missing: {tmp_path}/nothing: No such file or directory"]
    with tarfile.open(tmp_path / "out" / report.name) as tar:
        assert tar.extractfile("7.bin").read() == bytes(range(7, 17))  # type: ignore[union-attr]


def test_finished_tars_are_kept_for_the_same_fingerprint_only(tmp_path: Path) -> None:
    first = write_shards(samples(100), str(tmp_path), maxcount=20, fingerprint="one")
    (tmp_path / "shard-00002.tar").unlink()
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.tar")}
    assert write_shards(samples(100), str(tmp_path), maxcount=20, fingerprint="one") == first
    assert {path: path.stat().st_mtime_ns for path in times} == times
    other = write_shards(samples(50, seed=2), str(tmp_path), maxcount=20, fingerprint="two")
    assert other[0] != first[0] and [len(names) for names in read(tmp_path).values()] == [40, 40, 20]


def test_another_input_under_the_same_fingerprint_is_told(tmp_path: Path) -> None:
    write_shards(samples(100), str(tmp_path), maxcount=20, fingerprint="one", processes=1)
    with pytest.raises(ValueError, match="was made of other samples"):
        write_shards(list(samples(100))[:15], str(tmp_path), maxcount=20, fingerprint="one", processes=1)


def failing() -> Contents:
    def read(parts: object) -> Iterator[bytes | Fault]:
        raise RuntimeError("the disk is on fire")
        yield b""

    return read


@pytest.mark.parametrize("processes", [1, 2])
def test_a_writer_that_fails_stops_the_call_and_says_why(tmp_path: Path, processes: int) -> None:
    items = (Sample(f"{n}", {"bin": FilePart("/nothing", 10)}) for n in range(100))
    with pytest.raises((RuntimeError, WorkerFailed), match="the disk is on fire"):
        write_shards(items, str(tmp_path), contents=failing, processes=processes)
    assert read(tmp_path) == {}


def test_an_error_of_the_samples_is_raised_and_leaves_no_process(tmp_path: Path) -> None:
    def broken() -> Iterator[Sample]:
        yield from samples(50)
        raise KeyError("no more")

    with pytest.raises(KeyError):
        write_shards(broken(), str(tmp_path), maxcount=20)
    assert set(read(tmp_path)) <= {"shard-00000.tar", "shard-00001.tar"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".caption-assets-")] or True


SCRIPT = """
import sys, time
from caption_assets.core.exports.tarwriting import write_shards
from caption_assets_tests.core.exports.test_write_shards import samples
def slow():
    for sample in samples(400):
        time.sleep(0.002)
        yield sample
if __name__ == "__main__":
    write_shards(slow(), sys.argv[1], maxcount=20, fingerprint="one", progress=lambda report: print(report.name, flush=True))
"""


def test_killed_in_the_middle_and_run_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = partial(subprocess.Popen, [sys.executable, "-c", SCRIPT, str(out)], stdout=subprocess.PIPE)
    process = run()
    for _ in range(3):
        process.stdout.readline()  # type: ignore[union-attr]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(0.5)
    done = read(out)
    assert 3 <= len(done) < 20 and all(len(names) == 40 for names in done.values())
    times = {path: path.stat().st_mtime_ns for path in out.glob("*.tar")}
    assert run().wait() == 0
    names = read(out)
    assert [name for members in names.values() for name in members] == [
        f"a/{n:06d}.{e}" for n in range(400) for e in ("jpg", "txt")
    ]
    assert sum(path.stat().st_mtime_ns == at for path, at in times.items()) >= len(times) - 2
    assert [path.name for path in out.iterdir() if path.name.startswith(".caption-assets-")] == []

"""The tar index against tarfile: same members, same places, in every dialect; and what tarfile does not say."""

import io
import random
import tarfile
from pathlib import Path

import pytest

from caption_assets.core.sources.decompression import Stream
from caption_assets.core.sources.tarindex import Member, TarIndex
from caption_assets_tests.core.sources.sourcekit import PNG, collect, tar_bytes, write


def index(data: bytes) -> tuple[list[Member], str | None]:
    walk = TarIndex(Stream(io.BytesIO(data)), len(data))
    members = [member for batch in walk.batches() for member in batch]
    return members, walk.damage.detail if walk.damage else None


def by_tarfile(data: bytes) -> list[tuple[str, int, int]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(m.name, m.offset_data, m.size) for m in tar]


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_thousands_of_members_of_every_size(format: int) -> None:
    chance = random.Random(format)
    sizes = [chance.choice([0, 1, 511, 512, 513, 5000]) for _ in range(3000)] + [3 << 20, 100]
    data = tar_bytes(
        ((f"{n:05d}{'x' * chance.choice([0, 0, 120])}", bytes(size)) for n, size in enumerate(sizes)), tarfile.GNU_FORMAT
    )
    members, damage = index(data)
    assert damage is None
    assert [(m.name, m.offset, m.size) for m in members] == by_tarfile(data)


def test_sizes_that_octal_digits_do_not_hold() -> None:
    header = bytearray(tarfile.TarInfo("large.bin").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\x80" + (9 << 30).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    members, damage = index(bytes(header) + bytes(5000))
    assert members == [] and "cut within 'large.bin'" in (damage or "")
    small = tar_bytes([("a", b"12345")], tarfile.PAX_FORMAT)
    assert [m.size for m in index(small)[0]] == [5]


def test_pax_records_of_one_member_and_of_all() -> None:
    infos = []
    for name, pax in (("short", {"path": "a/very/long/name.jpg"}), ("other", {})):
        info = tarfile.TarInfo(name)
        info.pax_headers = pax
        infos.append(info)
    data = tar_bytes(infos, tarfile.PAX_FORMAT, comment="for all")
    assert [m.name for m in index(data)[0]] == ["a/very/long/name.jpg", "other"]


def test_signed_checksums_are_right_too() -> None:
    header = bytearray(tarfile.TarInfo("é.jpg").tobuf(tarfile.GNU_FORMAT))
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(byte - 256 if byte > 127 else byte for byte in header)
    members, damage = index(bytes(header) + bytes(1024))
    assert [m.name for m in members] == ["é.jpg"] and damage is None


def test_sparse_members_are_told_apart(tmp_path: Path) -> None:
    info = tarfile.TarInfo("s.jpg")
    info.size = 512
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "real.jpg",
        "GNU.sparse.realsize": "9",
    }
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(bytes(512)))
    old = bytearray(tarfile.TarInfo("old.jpg").tobuf(tarfile.GNU_FORMAT))
    old[156:157], old[482] = b"S", 1
    old[148:156] = b" " * 8
    old[148:156] = b"%06o\0 " % sum(old)
    data = sink.getvalue()[: 512 * 4] + bytes(old) + bytes(512) + tar_bytes([("after.jpg", b"x")])
    assert [(m.name, m.kind) for m in index(data)[0]] == [("real.jpg", "sparse"), ("old.jpg", "sparse"), ("after.jpg", "file")]


def test_content_is_kept_as_far_as_wanted() -> None:
    data = tar_bytes([("a.txt", b"0123456789"), ("b.jpg", b"abc"), ("c.txt", b"")])
    walk = TarIndex(Stream(io.BytesIO(data)), len(data), lambda name, size: min(size, 4) if name.endswith(".txt") else 0)
    assert [m.content for batch in walk.batches() for m in batch] == [b"0123", b"", b""]


@pytest.mark.parametrize("size", [str(10**14), "9" * 23, "9" * 5000])
def test_a_size_that_no_file_can_have_costs_what_stands_behind_it(tmp_path, size):
    first, lying = tar_bytes([("a.jpg", PNG)]), tarfile.TarInfo("b.jpg")
    lying.pax_headers = {"size": size}
    whole = first[: -(-len(PNG) // 512) * 512 + 512] + tar_bytes([lying, ("c.jpg", PNG)], tarfile.PAX_FORMAT)
    found = collect(write(tmp_path / "s", {"t.tar": whole}), tmp_path / "store")
    assert list(found.good) == ["t.tar#a.jpg"] and found.reasons == {"t.tar#": "truncated_shard"}

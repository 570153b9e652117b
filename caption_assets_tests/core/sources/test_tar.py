"""WebDataset tars: which members become records, what stands in them, and what becomes of faults."""

import gzip
import tarfile
from pathlib import Path

import pytest
import zstandard

from caption_assets_tests.core.sources.sourcekit import collect, member, picture, sha256, tar_bytes, write

J = [picture(n) for n in range(10)]


def read(tmp_path: Path, *members, **options):
    data = members[0] if len(members) == 1 and isinstance(members[0], bytes) else tar_bytes(members)
    write(tmp_path / "in", {"t.tar": data})
    return collect(tmp_path / "in", tmp_path / "store", **options)


def test_a_sample_is_one_record_with_its_texts(tmp_path: Path) -> None:
    got = read(
        tmp_path, ("a/000.jpg", J[0]), ("a/000.json", b'{"n": 1, "big": 123456789012345678901}'), ("a/000.txt", "é".encode())
    )
    (row,) = got.rows.values()
    assert (row["record_id"], row["id"], row["source_index"], row["reason"]) == ("t.tar#a/000.jpg", "a/000", 1, None)
    assert row["uri"] == f"{tmp_path}/in/t.tar#a/000.jpg"
    assert row["record_json"] == '{"__key__":"a/000","json":{"n": 1, "big": 123456789012345678901},"txt":"é"}'
    assert got.good == {"t.tar#a/000.jpg": sha256(J[0])}


def test_what_systems_leave_behind_is_ignored_and_counted(tmp_path: Path) -> None:
    names = [".DS_Store", "set/._p0.jpg", "__MACOSX/set/._p0.jpg", "set/Thumbs.db", "__MACOSX/p.jpg", "desktop.ini"]
    names += ["set/.AppleDouble/p0.jpg", "set/@eaDir/p0.jpg/SYNOPHOTO_THUMB_M.jpg", "ehthumbs.db"]
    got = read(tmp_path, *((name, b"junk") for name in names), member("set", tarfile.DIRTYPE), ("set/p0.jpg", J[0]))
    assert set(got.rows) == {"t.tar#set/p0.jpg"}
    assert got.summary["ignored"] == 10


def test_dots_belong_to_names_unless_they_begin_a_field(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        ("rel.v1.0/0001.jpg", J[0]),
        ("rel.v1.0/0002.jpg", J[1]),
        ("22.05.png", J[2]),
        ("22.10.png", J[3]),
        ("Track 2.0 (Clean).jpg", J[4]),
        ("Track 2.0 (Clean).json", b'{"n": 4}'),
        ("Track 3.0 (Clean).jpg", J[5]),
        ("s7.input.jpg", J[6]),
        ("s7.outputs.txt", b"old"),
        ("Dr. No.jpg", J[7]),
        ("./x.jpg", J[8]),
    )
    ids = {row["record_id"][6:]: row["id"] for row in got.rows.values()}
    assert ids == {
        "rel.v1.0/0001.jpg": "rel.v1.0/0001",
        "rel.v1.0/0002.jpg": "rel.v1.0/0002",
        "22.05.png": "22.05",
        "22.10.png": "22.10",
        "Track 2.0 (Clean).jpg": "Track 2.0 (Clean)",
        "Track 3.0 (Clean).jpg": "Track 3.0 (Clean)",
        "s7.input.jpg": "s7",
        "Dr. No.jpg": "Dr. No",
        "./x.jpg": "x",
    }
    assert got.record("t.tar#Track 2.0 (Clean).jpg")["json"] == {"n": 4}
    assert "json" not in got.record("t.tar#Track 3.0 (Clean).jpg")
    assert got.record("t.tar#s7.input.jpg")["outputs.txt"] == "old"
    assert len(set(got.good.values())) == 9


def test_several_pictures_of_a_sample_are_records_that_share_its_texts(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        ("a.left.jpg", J[0]),
        ("a.right.png", J[1]),
        ("a.json", b'{"n": 1}'),
        ("a.left.txt", b"only left"),
        ("b.jpg", J[2]),
        ("b.jpg.txt", b"of b"),
    )
    assert [row["id"] for row in got.rows.values()] == ["a", "a", "b"]
    assert got.record("t.tar#a.left.jpg") == {"__key__": "a", "json": {"n": 1}, "txt": "only left"}
    assert got.record("t.tar#a.right.png") == {"__key__": "a", "json": {"n": 1}}
    assert got.record("t.tar#b.jpg") == {"__key__": "b", "txt": "of b"}
    assert got.summary["equal_ids"] == 0


def test_extensions_in_any_case_and_none_at_all(tmp_path: Path) -> None:
    got = read(
        tmp_path, ("B1.JPG", J[1]), ("B1.JSON", b"{}"), ("B2.Png", J[2]), ("nameless", J[3]), ("odd.ext", J[4]), ("x.npy", b"12")
    )
    assert set(got.good) == {"t.tar#B1.JPG", "t.tar#B2.Png", "t.tar#nameless", "t.tar#odd.ext"}
    assert got.record("t.tar#B1.JPG")["json"] == {}
    assert got.summary["ignored"] == 1


@pytest.mark.parametrize("apart", [False, True])
def test_the_first_of_equal_names_is_kept(tmp_path: Path, apart: bool) -> None:
    between = [("2.jpg", J[3])] if apart else []
    got = read(tmp_path, ("1.jpg", J[0]), *between, ("1.jpg", J[1]), ("1.jpg", J[2]), ("9.jpg", J[5]))
    assert got.reasons == {"t.tar#1.jpg~2": "duplicate_key", "t.tar#1.jpg~3": "duplicate_key"}
    assert got.good["t.tar#1.jpg"] == sha256(J[0])
    assert "1.jpg" in got.rows["t.tar#1.jpg~2"]["detail"]
    assert got.rows["t.tar#1.jpg~2"]["id"] == "1"


def test_ids_stay_unique_whatever_members_are_called(tmp_path: Path) -> None:
    got = read(tmp_path, ("1.jpg", J[0]), ("1.jpg", J[1]), ("1.jpg~2", J[2]), ("1.jpg~2", J[3]))
    assert len(got.rows) == 4 and list(got.reasons.values()) == ["duplicate_key"] * 2


def test_empty_members_and_samples_without_a_picture(tmp_path: Path) -> None:
    got = read(tmp_path, ("1.jpg", b""), ("1.txt", b"t"), ("2.json", b"{}"), ("3.jpg", J[0]))
    assert got.reasons == {"t.tar#1.jpg": "empty_file", "t.tar#2.json": "missing_image"}
    assert got.rows["t.tar#2.json"]["id"] == "2"


def test_links_and_devices_are_records_with_a_reason(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        member("d/early.jpg", tarfile.SYMTYPE, "../real.jpg"),
        ("real.jpg", J[0]),
        member("hard.jpg", tarfile.LNKTYPE, "real.jpg"),
        member("gone.png", tarfile.SYMTYPE, "nowhere.png"),
        member("out.jpg", tarfile.SYMTYPE, "/etc/passwd"),
        member("pipe.jpg", tarfile.FIFOTYPE),
        member("pipe", tarfile.FIFOTYPE),
    )
    assert got.reasons == {
        "t.tar#d/early.jpg": "link_member",
        "t.tar#hard.jpg": "link_member",
        "t.tar#gone.png": "missing_target",
        "t.tar#out.jpg": "missing_target",
        "t.tar#pipe.jpg": "not_a_file",
    }
    assert set(got.good) == {"t.tar#real.jpg"} and got.summary["ignored"] == 1


def test_a_cut_tar_keeps_its_whole_members_and_is_reported_once(tmp_path: Path) -> None:
    data = tar_bytes([(f"s{n}.{e}", c) for n in range(8) for e, c in (("jpg", J[n]), ("json", b"{}"))])
    for number, cut in enumerate(range(600, data.rindex(b"s7.json") + 1024, 333)):
        got = read(tmp_path / str(number), data[:cut])
        assert got.reasons == {"t.tar#": "truncated_shard"}, cut
        whole = [n for n in range(8) if data.index(J[n]) + len(J[n]) <= cut]
        assert got.good == {f"t.tar#s{n}.jpg": sha256(J[n]) for n in whole}, cut
        assert got.rows["t.tar#"]["source_index"] == 0


def test_ends_that_are_good_enough(tmp_path: Path) -> None:
    data = tar_bytes([("a.jpg", J[0])])
    end = data.index(J[0]) // 512 * 512 + 512 * -(-len(J[0]) // 512)
    for number, tail in enumerate((bytes(512), bytes(1024), bytes(1024) + b"junk" * 300)):
        assert read(tmp_path / str(number), data[:end] + tail).reasons == {}
    for number, tail in enumerate((b"", bytes(1024) + data), 10):
        got = read(tmp_path / str(number), data[:end] + tail)
        assert got.reasons == {"t.tar#": "truncated_shard"} and set(got.good) == {"t.tar#a.jpg"}


@pytest.mark.parametrize("data", [b"", b"<html>not found</html>" * 50, J[0], bytes(700)])
def test_what_is_no_tar_is_one_record(tmp_path: Path, data: bytes) -> None:
    got = read(tmp_path, data)
    assert got.reasons == ({"t.tar#": "truncated_shard"} if data.strip(b"\0") or not data else {})


def test_a_damaged_header_ends_the_tar(tmp_path: Path) -> None:
    data = bytearray(tar_bytes([(f"{n}.jpg", J[n]) for n in range(6)]))
    data[data.index(b"3.jpg") + 130] ^= 1
    got = read(tmp_path, bytes(data))
    assert set(got.good) == {f"t.tar#{n}.jpg" for n in range(3)}
    assert got.reasons == {"t.tar#": "truncated_shard"}


def test_members_of_a_sample_that_stand_apart_are_reported_once(tmp_path: Path) -> None:
    for number, order in enumerate((["jpg", "json"], ["json", "jpg"])):
        got = read(tmp_path / str(number), *((f"{n}.{e}", J[n] if e == "jpg" else b"{}") for e in order for n in range(3)))
        assert got.reasons == {"t.tar#": "unordered_shard"} and len(got.good) == 3
    assert read(tmp_path / "9", ("a.jpg", J[0]), ("b.jpg", J[1]), ("a.png", J[2])).reasons == {}


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_packed_tars_by_content_whatever_their_name(tmp_path: Path, pack) -> None:
    data = tar_bytes([(f"{n:03d}.jpg", J[n % 10]) for n in range(50)])
    got = read(tmp_path, pack(data))
    assert got.good == {f"t.tar#{n:03d}.jpg": sha256(J[n % 10]) for n in range(50)}
    row = got.rows["t.tar#030.jpg"]
    assert data[row["byte_offset"] : row["byte_offset"] + row["byte_length"]] == J[0]
    packed = pack(data)
    cut = read(tmp_path / "cut", packed[: len(packed) * 2 // 3])
    assert cut.reasons == {"t.tar#": "truncated_shard"}
    assert all(got.good[key] == digest for key, digest in cut.good.items())


@pytest.mark.parametrize(
    "magic", [b"BZh91AY&SY", b"\xfd7zXZ\0\0\4", b"\x04\x22\x4d\x18", b"PK\x03\x04", b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07"]
)
def test_other_packings_are_refused_by_name(tmp_path: Path, magic: bytes) -> None:
    got = read(tmp_path, magic + b"x" * 2000)
    assert got.reasons == {"t.tar#": "unsupported_compression"}


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_in_every_dialect(tmp_path: Path, format: int) -> None:
    names = [f"{'d' * 90}/{n}.jpg" for n in range(3)]
    if format != tarfile.USTAR_FORMAT:
        names += [f"{'x/' * 120}{n}.jpg" for n in range(3)] + ["写真 ü.jpg", "tab\there.jpg", 'quote".jpg']
    write(tmp_path / "in", {"t.tar": tar_bytes([(name, J[n]) for n, name in enumerate(names)], format)})
    got = collect(tmp_path / "in", tmp_path / "store")
    assert got.good == {f"t.tar#{name}": sha256(J[n]) for n, name in enumerate(names)}


def test_names_that_are_no_utf8_stay_apart(tmp_path: Path) -> None:
    data = tar_bytes([("caf\udce9.jpg", J[0]), ("caf\udce8.jpg", J[1])], tarfile.GNU_FORMAT)
    got = read(tmp_path, data)
    assert set(got.good) == {"t.tar#caf\\udce9.jpg", "t.tar#caf\\udce8.jpg"}


def test_sidecars_in_any_state_never_fail_a_record(tmp_path: Path) -> None:
    texts = [b"\x93quoted\x94 caf\xe9", "ü".encode("utf-16"), b"\xef\xbb\xbfbom", b"", b"a\0b"]
    pairs = [(f"{n}.{e}", c) for n, text in enumerate(texts) for e, c in (("jpg", J[n]), ("txt", text))]
    got = read(
        tmp_path, *pairs, ("j.jpg", J[6]), ("j.json", b"{broken"), ("k.jpg", J[7]), ("k.json", b'{"x": NaN, "s": "\\ud83d"}')
    )
    assert len(got.good) == 7 and got.summary["bad_sidecars"] == 2
    assert [got.record(f"t.tar#{n}.jpg")["txt"] for n in range(5)] == ["�quoted� caf�", "ü", "bom", "", "a\0b"]
    assert got.record("t.tar#j.jpg")["json"] == "{broken"
    assert '"s": "\\ud83d"' in got.rows["t.tar#k.jpg"]["record_json"]


def test_equal_keys_in_two_tars_are_different_records(tmp_path: Path) -> None:
    write(tmp_path / "in", {f"{s}.tar": tar_bytes([(f"{n}.jpg", J[s * 4 + n]) for n in range(4)]) for s in range(2)})
    got = collect(tmp_path / "in", tmp_path / "store")
    assert len(set(got.good.values())) == 8 and got.shards == {str(s): [f"{s}.tar#{n}.jpg" for n in range(4)] for s in range(2)}

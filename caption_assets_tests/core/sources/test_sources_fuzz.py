"""Damaged and strange sources: whatever the bytes, every record is read or has a reason, and nothing is raised."""

import gzip
import io
import json
import tarfile
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caption_assets.core.columns import SOURCE_REASONS
from caption_assets_tests.core.sources.sourcekit import Collected, collect, picture, sha256, tar_bytes, write

bounded = settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))

edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=6)
cuts = st.one_of(st.none(), st.floats(0, 1))
names = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=()), min_size=1, max_size=40),
    st.sampled_from(
        [
            "a.jpg",
            "a.json",
            "a.txt",
            "b.left.png",
            "b.right.png",
            "b.json",
            "._a.jpg",
            "d/",
            "d/a.JPG",
            "22.05.png",
            ".jpg",
            "..",
            "./x.png",
        ]
    ),
)


def damaged(data: bytes, flips: list[tuple[float, int]], cut: float | None) -> bytes:
    changed = bytearray(data)
    for place, value in flips:
        if changed:
            changed[int(place * (len(changed) - 1))] ^= value
    return bytes(changed if cut is None else changed[: int(cut * len(changed))])


def accounted(name: str, data: bytes, **options) -> Collected:
    """Plans and reads it; `collect` checks that ids are unique and counts agree."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "in", {name: data, "p.jpg": picture(0)})
        got = collect(Path(folder) / "in" / name, Path(folder) / "store", **options)
    assert set(got.reasons.values()) <= set(SOURCE_REASONS)
    for key, row in got.rows.items():
        assert (key in got.good) != (key in got.reasons)
        for text in row.values():
            assert not isinstance(text, str) or text.encode() is not None
    return got


def sample_tar(format: int) -> bytes:
    members = [
        (f"{'long/' * 30 if n == 2 else ''}{n}.{e}", c) for n in range(6) for e, c in (("jpg", picture(n)), ("json", b'{"n": 1}'))
    ]
    return tar_bytes(members, format)


@bounded
@given(
    st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    edits,
    cuts,
    st.sampled_from([bytes, gzip.compress, zstandard.compress]),
)
def test_damaged_tars(format: int, flips, cut, pack) -> None:
    if format == tarfile.USTAR_FORMAT:
        format = tarfile.GNU_FORMAT
    accounted("t.tar", damaged(pack(sample_tar(format)), flips, cut))


@bounded
@given(st.lists(st.tuples(names, st.binary(max_size=600), st.sampled_from("0012567SLKxg")), max_size=12))
def test_tars_of_strange_members(members) -> None:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogatepass") as tar:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(content), kind.encode(), "a.jpg"
            tar.addfile(info, io.BytesIO(content))
    accounted("t.tar", sink.getvalue())


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "uri", "x"]), inner, max_size=3),
    max_leaves=8,
)
rows = st.dictionaries(st.sampled_from(["id", "uri", "caption", "é"]), json_values | st.just("p.jpg"), max_size=4)
BOM = b"\xef\xbb\xbf"
jsonl_lines = st.one_of(
    rows.map(lambda row: json.dumps(row).encode()),
    rows.map(lambda row: json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")),
    st.sampled_from([b"", b"\r", b"  ", b"\xef\xbb\xbf", b"[" * 3000, b'{"uri": "p.jpg"}\r', b'{"id": 1e999, "uri": "p.jpg"}']),
)


@bounded
@given(
    st.lists(jsonl_lines, max_size=15),
    st.booleans(),
    st.integers(1, 20),
    st.sampled_from([bytes, gzip.compress, zstandard.compress]),
)
def test_strange_catalogs(lines, newline: bool, size: int, pack) -> None:
    text = b"\n".join(lines) + (b"\n" if newline else b"")
    if not text:
        return
    got = accounted("c.jsonl.gz", pack(b"\n" + text), shard_size=size)
    expected = [n for n, line in enumerate([b"", *text.split(b"\n")], 1) if line.strip().removeprefix(BOM).strip()]
    assert [row["source_index"] for row in got.rows.values()] == expected


@bounded
@given(edits, cuts, st.sampled_from([gzip.compress, zstandard.compress]))
def test_damaged_catalogs(flips, cut, pack) -> None:
    text = b"".join(b'{"id": %d, "uri": "p.jpg", "x": "%s"}\n' % (n, sha256(b"%d" % n).encode()) for n in range(200))
    data = damaged(pack(text), flips, cut)
    if data:
        accounted("c.jsonl", data, shard_size=50, format="jsonl")


def sample_parquet(images: bool) -> bytes:
    table = pa.table(
        {
            "id": pa.array(range(60)),
            "text": pa.array([f"text {n} " * (n % 7) for n in range(60)]),
            "image": pa.array([{"bytes": picture(n) if n % 5 else None, "path": "p.jpg"} for n in range(60)])
            if images
            else pa.array(["p.jpg"] * 60),
            "tags": pa.array([[{"a": n}] * (n % 3) for n in range(60)]),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=25, compression="zstd")
    return sink.getvalue()


PARQUETS = [sample_parquet(True), sample_parquet(False)]


@bounded
@given(st.sampled_from(PARQUETS), edits, cuts, st.booleans())
def test_damaged_parquet(data: bytes, flips, cut, footer: bool) -> None:
    if footer:  # most bytes are pages: aim at the footer as often
        flips = [(1 - place * 0.1, value) for place, value in flips]
    accounted("a.parquet", damaged(data, flips, cut), shard_size=30)

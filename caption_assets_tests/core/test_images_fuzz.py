"""Whatever bytes come in: pixels or a reason, never another exception, never much memory."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from caption_assets.config import ImagesConfig
from caption_assets.core.columns import REASONS
from caption_assets.core.faults import PictureFault
from caption_assets.core.images import decode, prepare_single, thumbnail
from caption_assets_tests.pictures import exif, noise, oriented, png_chunk, save, with_chunks

LIMITS = ImagesConfig(max_pixels=4_000_000)
BOUNDED = settings(
    max_examples=200, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True
)


@cache
def seeds() -> list[bytes]:
    """A small valid picture of every format and feature that is read."""
    picture = noise(5)
    frames = {"save_all": True, "append_images": [noise(6), noise(7)]}
    found = [
        save(picture, "jpeg"),
        save(picture, "jpeg", progressive=True, exif=exif(6)),
        save(picture.convert("CMYK"), "jpeg"),
        save(picture.convert("L"), "jpeg", restart_marker_blocks=2),
        save(picture, "MPO", **frames),
        save(picture, "png", **frames),
        with_chunks(
            save(oriented(picture, 5), "png", exif=exif(5)), png_chunk(b"tEXt", b"a\0b"), png_chunk(b"iCCP", b"a\0\0junk")
        ),
        save(picture.quantize(9), "png", transparency=b"\0\xff"),
        save(picture, "webp"),
        save(picture.convert("RGBA"), "webp", **frames),
        save(picture, "webp", lossless=True, exif=exif(3)),
        save(picture, "gif", **frames),
        save(picture, "bmp"),
        save(picture.convert("1"), "bmp"),
        *(save(picture, "tiff", compression=packing) for packing in ("raw", "tiff_lzw", "jpeg", "tiff_deflate")),
        save(picture.convert("F"), "tiff"),
        save(picture, "avif", speed=9),
        save(picture.convert("RGBA"), "avif", speed=9),
    ]
    try:
        import pillow_jxl  # noqa: F401

        found += [save(picture, "JXL", effort=1), save(picture, "JXL", use_container=True, effort=1)]
    except ImportError:
        pass
    try:
        import pillow_heif

        pillow_heif.register_heif_opener()
        found.append(save(picture, "HEIF"))
    except ImportError:
        pass
    return found


def survives(data: bytes) -> None:
    for use in (lambda: decode(data, LIMITS), lambda: decode(data, LIMITS, 16), lambda: prepare_single(data, LIMITS)):
        try:
            result = use()
        except PictureFault as error:
            assert error.fault.reason in REASONS and 0 < len(error.fault.detail) <= 500
        else:
            assert result.width > 1 and result.height > 1
            if hasattr(result, "image"):
                assert isinstance(result.image, Image.Image) and result.image.mode == "RGB"
    try:
        thumbnail(data, LIMITS, 32)
    except PictureFault:
        pass


def test_the_seeds_are_good_pictures() -> None:
    for data in seeds():
        decode(data, LIMITS)


@BOUNDED
@given(st.integers(0, 40), st.floats(0, 1), st.binary(max_size=20))
def test_cut_files(seed: int, share: float, tail: bytes) -> None:
    data = seeds()[seed % len(seeds())]
    survives(data[: int(len(data) * share)] + tail)


@BOUNDED
@given(
    st.integers(0, 40),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=8),
    st.booleans(),
)
def test_changed_bytes(seed: int, changes: list[tuple[float, int]], in_header: bool) -> None:
    data = bytearray(seeds()[seed % len(seeds())])
    reach = min(200, len(data)) if in_header else len(data)
    for place, value in changes:
        data[int(place * reach)] = value
    survives(bytes(data))


@BOUNDED
@given(st.integers(0, 40), st.floats(0, 1), st.floats(0, 1), st.integers(0, 64))
def test_parts_lost_or_repeated(seed: int, begin: float, end: float, times: int) -> None:
    data = seeds()[seed % len(seeds())]
    a, b = sorted((int(len(data) * begin), int(len(data) * end)))
    survives(data[:a] + data[a:b] * times + data[b:])


@BOUNDED
@given(
    st.sampled_from(
        [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0", b"MM\0+", b"\xff\x0a", b"RIFF\0\0\0\0WEBP", b""]
    ),
    st.binary(max_size=300),
)
def test_noise_behind_a_signature(signature: bytes, noise: bytes) -> None:
    survives(signature + noise)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak can be reset on Linux only")
def test_memory_stays_small() -> None:
    """A picture of 4 million pixels needs 16 MB a copy; ten times that must do for any bytes."""
    seeds()
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    for data in seeds():
        for place in range(4, min(len(data), 120), 3):
            survives(data[:place] + b"\xff\xff" + data[place + 2 :])
    assert _status("VmHWM") - before < 160_000


def _status(name: str) -> int:
    """Kilobytes of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])

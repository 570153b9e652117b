"""What becomes of pictures that are broken, too large or too odd: the right reason, in bounded memory."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from caption_assets.config import ImagesConfig
from caption_assets.core import images
from caption_assets.core.images import decode, prepare_single
from caption_assets_tests.core.imagekit import LIMITS, is_scene, reason
from caption_assets_tests.pictures import (
    RED,
    empty_png,
    exif,
    noise,
    png_chunk,
    save,
    scene,
    with_chunks,
)

ROOT = Path(__file__).parents[2]


class TestBroken:
    @pytest.mark.parametrize("progressive", [False, True])
    @pytest.mark.parametrize("share", [0.4, 0.5, 0.9, 0.99])
    def test_a_cut_jpeg_is_a_decode_error_also_with_an_end_marker_behind(self, progressive: bool, share: float) -> None:
        data = save(noise(1, 400, 320), "jpeg", quality=95, progressive=progressive)
        cut = data[: int(len(data) * share)]
        assert reason(cut) == "decode_error"
        assert reason(cut + b"\xff\xd9") == "decode_error"

    def test_a_jpeg_without_its_end_marker_is_a_decode_error(self) -> None:
        assert reason(save(scene(), "jpeg")[:-2]) == "decode_error"

    def test_a_hole_in_a_jpeg_is_a_decode_error(self) -> None:
        data = save(noise(2, 400, 320), "jpeg", quality=95)
        assert reason(data[: len(data) // 2] + data[-200:]) == "decode_error"

    def test_harmless_junk_in_a_jpeg_is_ignored(self) -> None:
        data = save(scene(), "jpeg")
        app13 = b"\xff\xed" + struct.pack(">H", 22) + b"Photoshop 3.0\0junk.."
        for junk in (
            data + b"trailing junk", data[:-2] + b"\0\0\0\0" + data[-2:], data[:2] + app13 + data[2:],
            data[:2] + b"\xff" * 9 + data[2:],
        ):  # fmt: skip
            assert is_scene(decode(junk, LIMITS))

    @pytest.mark.parametrize("format", ["png", "webp", "gif", "bmp", "tiff", "avif"])
    def test_other_cut_files_are_decode_errors(self, format: str) -> None:
        data = save(noise(3, 200, 160), format)
        for share in (0.3, 0.6, 0.9):
            assert reason(data[: int(len(data) * share)]) == "decode_error"

    def test_a_damaged_png_is_a_decode_error(self) -> None:
        data = bytearray(save(noise(4, 200, 160), "png"))
        data[len(data) // 2] ^= 0xFF
        assert reason(bytes(data)) == "decode_error"
        assert reason(save(scene(), "png")[:-12]) == "decode_error"

    def test_real_lack_of_memory_and_interrupts_are_not_reasons(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for error in (KeyboardInterrupt, SystemExit):

            def fail(*_: object, error: type[BaseException] = error, **__: object) -> None:
                raise error

            monkeypatch.setattr(images.simplejpeg, "decode_jpeg", fail)
            with pytest.raises(error):
                decode(save(scene(), "jpeg"), LIMITS)

    def test_a_decoder_that_wants_absurd_memory_is_a_decode_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> None:
            raise MemoryError

        monkeypatch.setattr(images.simplejpeg, "decode_jpeg", fail)
        assert reason(save(scene(), "jpeg")) == "decode_error"


class TestSizes:
    def test_pixels_are_counted_before_they_are_decoded(self) -> None:
        assert reason(empty_png(30_000, 30_000)) == "too_many_pixels"
        small = ImagesConfig(max_pixels=9_599)
        for format in ("jpeg", "png", "webp", "gif", "bmp", "tiff", "avif"):
            assert reason(save(scene(), format), small) == "too_many_pixels"
            assert is_scene(decode(save(scene(), format), ImagesConfig(max_pixels=9_600)))

    def test_lying_headers_cost_nothing(self) -> None:
        gif, bmp = bytearray(save(scene(), "gif")), bytearray(save(scene(), "bmp"))
        gif[6:10] = b"\xff\xff\xff\xff"
        bmp[18:26] = struct.pack("<ii", 2**31 - 1, 2**31 - 1)
        webp = bytearray(save(scene().convert("RGBA"), "webp", exif=exif(1)))
        webp[24:30] = b"\xfe\x3f\x00\xfe\x3f\x00"
        jpeg = bytearray(save(scene(), "jpeg"))
        at = jpeg.index(b"\xff\xc0") + 5
        jpeg[at : at + 4] = b"\xff\xdc\xff\xdc"
        for data in (gif, bmp, jpeg):
            assert reason(bytes(data)) == "too_many_pixels"
        assert reason(bytes(webp)) in ("too_many_pixels", "decode_error")

    def test_a_frame_larger_than_its_gif(self) -> None:
        gif = bytearray(save(scene(), "gif"))
        at = gif.index(b"\x2c")
        gif[at + 5 : at + 9] = b"\xff\xff\xff\xff"
        assert reason(bytes(gif)) in ("too_many_pixels", "decode_error")

    def test_files_beyond_max_bytes(self) -> None:
        data = save(scene(), "png")
        assert reason(data, ImagesConfig(max_bytes=len(data) - 1)) == "too_many_pixels"

    @pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (2010, 10), (10, 2010)])
    def test_slivers_are_bad_dimensions(self, size: tuple[int, int]) -> None:
        for format in ("png", "jpeg"):
            assert reason(save(Image.new("RGB", size), format)) == "bad_dimensions"

    @pytest.mark.parametrize("size", [(2, 2), (400, 2), (2000, 10), (10, 2000)])
    def test_extreme_but_usable_shapes_are_kept(self, size: tuple[int, int]) -> None:
        data = save(Image.new("RGB", size, RED), "png")
        assert decode(data, LIMITS, at_least=16).width == size[0]
        assert min(prepare_single(data, ImagesConfig(longest_side=16)).width, 1) == 1

    def test_bombs_in_png_texts_and_profiles_are_never_unpacked(self) -> None:
        bomb = zlib.compress(bytes(80_000_000), 6)
        text = png_chunk(b"zTXt", b"Comment\0\0" + bomb)
        profile = png_chunk(b"iCCP", b"icc\0\0" + bomb)
        long = png_chunk(b"iTXt", b"workflow\0\0\0\0\0" + b"x" * 3_000_000)
        for data in (
            with_chunks(save(scene(), "png"), text, profile, long),
            with_chunks(save(scene(), "png"), text, at_end=True),
            with_chunks(save(scene(), "png"), *[png_chunk(b"tEXt", b"k\0v")] * 5000),
        ):
            assert is_scene(decode(data, LIMITS))
            prepared = prepare_single(data, LIMITS)
            with Image.open(io.BytesIO(prepared.data)) as sent:
                sent.load()

    def test_memory_stays_bounded_for_the_largest_pictures_allowed(self) -> None:
        """One process decodes, one after the other, what could hurt: 1.5 GB is the most it may take."""
        program = """
from caption_assets.config import ImagesConfig
from caption_assets.core.images import decode
from caption_assets.core.faults import PictureFault
from caption_assets_tests.pictures import empty_png
from concurrent.futures import ThreadPoolExecutor
def one(data):
    try: decode(data, ImagesConfig(), at_least=1024)
    except PictureFault as fault: return fault.fault.reason
big = [empty_png(10000, 10000, 8), empty_png(30000, 30000, 1), empty_png(6000, 6000, 1), empty_png(6000, 6000, 1)]
done = list(ThreadPoolExecutor(4).map(one, big))
# Not getrusage: its peak begins with that of the process that started this one.
print(done, next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
        out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        assert out.startswith("[None, 'too_many_pixels', None, None]")
        assert int(out.split()[-1]) < 1500 * 1024

    def test_threads_share_the_pixels_they_decode_at_a_time(self) -> None:
        budget, held, most = images._Budget(100), [], []

        def use(pixels: int) -> None:
            with budget.of(pixels):
                held.append(pixels)
                most.append(sum(held))
                held.remove(pixels)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(use, [30, 60, 90, 5000, 10] * 40))
        assert all(total <= 100 or total == 5000 for total in most) and budget._free == 100

"""What becomes of pictures as they are found: the right pixels."""

from __future__ import annotations

import io
import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms

from caption_assets.config import ImagesConfig
from caption_assets.core import images
from caption_assets.core.faults import PictureFault
from caption_assets.core.images import decode, prepare_single, thumbnail
from caption_assets_tests.core.imagekit import LIMITS, close, is_scene, reason
from caption_assets_tests.pictures import (
    GREY,
    RED,
    exif,
    grey_jpeg,
    oriented,
    photo,
    png_chunk,
    save,
    scene,
)


class TestFormats:
    @pytest.mark.parametrize("format", ["jpeg", "png", "webp", "gif", "bmp", "tiff", "avif"])
    def test_every_common_format_gives_its_pixels(self, format: str) -> None:
        decoded = decode(save(scene(), format), LIMITS)
        assert decoded.format == format and is_scene(decoded)

    def test_heic(self) -> None:
        heif = pytest.importorskip("pillow_heif")
        sink = io.BytesIO()
        heif.from_pillow(scene()).save(sink, quality=90)
        decoded = decode(sink.getvalue(), LIMITS)
        assert decoded.format == "heic" and is_scene(decoded)

    @pytest.mark.parametrize("container", [False, True])
    def test_jpeg_xl(self, container: bool) -> None:
        pytest.importorskip("pillow_jxl")
        for size in ((120, 80), (1000, 999), (64, 64), (16, 8), (300, 200)):
            decoded = decode(save(scene(*size), "JXL", use_container=container, effort=1), LIMITS)
            assert decoded.format == "jxl" and is_scene(decoded, size)
        assert reason(save(scene(300, 200), "JXL", effort=1), ImagesConfig(max_pixels=59_999)) == "too_many_pixels"

    def test_a_missing_library_is_an_unsupported_format_that_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pillow_jxl", None)
        monkeypatch.setitem(sys.modules, "pillow_jxl.JpegXLImagePlugin", None)
        images._plugin.cache_clear()
        with pytest.raises(PictureFault, match=r"unsupported_format.*caption-assets\[jxl\]"):
            decode(b"\xff\x0a\x41\x10\x20" + bytes(60), LIMITS)
        images._plugin.cache_clear()

    @pytest.mark.parametrize(
        "data",
        [
            b"<!DOCTYPE html><html></html>", b"<?xml version='1.0'?><svg/>", b"<svg xmlns='http://www.w3.org/2000/svg'/>",
            b'{"error": 404}', b"BMW cars", b"Too many requests\n", b"%PDF-1.7\n", b"PK\x03\x04zip", b"\x00",
            b"RIFF\x00\x00\x00\x00WAVEfmt ", b"GI", b"\x00\x00\x00\x18ftypisom\x00\x00\x02\x00isommp42",
            b"\xff\xd8", bytes(999), "Ünicode".encode("utf-16"),
        ],
    )  # fmt: skip
    def test_what_is_no_picture_says_so(self, data: bytes) -> None:
        assert reason(data) == "not_an_image"

    @pytest.mark.parametrize("format", ["ICO", "PPM", "DDS", "EPS", "JPEG2000", "ICNS"])
    def test_pictures_of_formats_that_are_not_read_say_so(self, format: str) -> None:
        assert reason(save(scene(64, 64), format)) == "unsupported_format"

    def test_no_bytes(self) -> None:
        assert reason(b"") == "empty_file"

    @pytest.mark.parametrize("format", ["jpeg", "png", "webp", "gif", "bmp", "tiff", "avif"])
    def test_a_header_alone_is_a_decode_error(self, format: str) -> None:
        assert reason(save(scene(), format)[:40]) == "decode_error"


class TestUpright:
    @pytest.mark.parametrize("format", ["jpeg", "png", "webp", "tiff", "avif"])
    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_the_stored_orientation_is_applied(self, format: str, orientation: int) -> None:
        data = save(oriented(scene(), orientation), format, exif=exif(orientation))
        assert is_scene(decode(data, LIMITS))
        assert is_scene(decode(data, LIMITS, at_least=20))
        prepared = prepare_single(data, LIMITS)
        assert (prepared.width, prepared.height) == (120, 80)
        assert is_scene(decode(prepared.data, LIMITS))

    @pytest.mark.parametrize(
        "junk", [b"Exif\0\0junk", b"Exif\0\0II*\0\xff\xff\xff\xff", exif(9), exif(0), exif(6)[:-3], b"Exif\0\0"]
    )
    def test_junk_orientation_does_no_harm(self, junk: bytes) -> None:
        for format in ("jpeg", "webp", "png"):
            assert decode(save(scene(), format, exif=junk), LIMITS).width in (80, 120)


class TestColour:
    def test_cmyk_jpeg_with_and_without_the_adobe_marker(self) -> None:
        inverted = save(scene().convert("CMYK"), "jpeg", quality=95)
        assert b"Adobe" in inverted and is_scene(decode(inverted, LIMITS))
        at = inverted.index(b"\xff\xee")
        plain = inverted[:at] + inverted[at + 2 + int.from_bytes(inverted[at + 2 : at + 4], "big") :]
        assert close(decode(plain, LIMITS).image.getpixel((90, 60)), (0, 0, 0), 40)

    def test_ycck_jpeg(self) -> None:
        stored = 255 - np.asarray(scene().convert("CMYK"))
        data = images.simplejpeg.encode_jpeg(np.ascontiguousarray(stored), colorspace="CMYK", quality=95)
        assert is_scene(decode(data, LIMITS)) and is_scene(decode(data, LIMITS, at_least=20))

    def test_cmyk_tiff(self) -> None:
        assert is_scene(decode(save(scene().convert("CMYK"), "tiff"), LIMITS))

    def test_jpegs_with_unusual_subsampling_or_grey(self) -> None:
        assert close(decode(save(scene().convert("L"), "jpeg"), LIMITS).image.getpixel((90, 60)), GREY)
        for sampling in ((0x31, 0x11, 0x11), (0x22, 0x21, 0x12), (0x11, 0x21, 0x21), (0x14, 0x11, 0x11), (0x11, 0x11, 0x22)):
            decoded = decode(grey_jpeg(90, 70, sampling), LIMITS)
            assert (decoded.width, decoded.height) == (90, 70) and close(decoded.image.getpixel((80, 60)), (128,) * 3, 3)

    def test_sixteen_bits_become_eight(self) -> None:
        ramp = np.linspace(0, 65535, 80 * 60, dtype=np.uint16).reshape(60, 80)
        for format in ("png", "tiff"):
            image = decode(save(Image.fromarray(ramp), format), LIMITS).image
            assert close(image.getpixel((0, 0)), (0, 0, 0), 2) and close(image.getpixel((79, 59)), (255, 255, 255), 2)
            assert close(image.getpixel((40, 30)), (128, 128, 128), 4)

    def test_sixteen_bit_rgb_png(self) -> None:
        rows = b"".join(b"\0" + struct.pack(">3H", 0xDC00, 0x1400, 0x1400) * 40 for _ in range(30))
        header = struct.pack(">IIBBBBB", 40, 30, 16, 2, 0, 0, 0)
        png = (
            b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")
        )
        assert close(decode(png, LIMITS).image.getpixel((20, 15)), RED, 3)

    def test_wide_greys_are_stretched(self) -> None:
        for kind in (np.float32, np.int32):
            ramp = np.linspace(-1000, 1000, 80 * 60).astype(kind).reshape(60, 80)
            image = decode(save(Image.fromarray(ramp), "tiff"), LIMITS).image
            assert close(image.getpixel((0, 0)), (0, 0, 0), 2) and close(image.getpixel((79, 59)), (255, 255, 255), 2)
        assert decode(save(Image.fromarray(np.full((60, 80), 7, np.int32)), "tiff"), LIMITS).image.getextrema() == ((0, 0),) * 3
        assert reason(save(Image.fromarray(np.full((60, 80), np.inf, np.float32)), "tiff")) == "decode_error"

    @pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
    @pytest.mark.parametrize("format", ["png", "webp", "tiff"])
    def test_transparency_lies_on_white(self, mode: str, format: str) -> None:
        drawing = Image.new("RGBA", (100, 60), (0, 0, 0, 0))
        drawing.paste((30, 30, 30, 255), (20, 20, 80, 40))
        if mode == "PA":
            format, drawing = format.replace("tiff", "png"), drawing.quantize()
        else:
            drawing = drawing.convert(mode)
        image = decode(save(drawing, format, **({"lossless": True} if format == "webp" else {})), LIMITS).image
        assert close(image.getpixel((5, 5)), (255, 255, 255), 3) and close(image.getpixel((50, 30)), (30, 30, 30), 3)

    def test_palette_with_a_table_or_one_index_of_transparency(self) -> None:
        drawing = Image.new("P", (100, 60), 0)
        drawing.putpalette([0, 0, 0, 30, 30, 30] + [9] * 750)
        drawing.paste(1, (20, 20, 80, 40))
        for transparency, format in ((b"\0\xff", "png"), (0, "png"), (0, "gif")):
            image = decode(save(drawing, format, transparency=transparency), LIMITS).image
            assert close(image.getpixel((5, 5)), (255, 255, 255), 3) and close(image.getpixel((50, 30)), (30, 30, 30), 3)
            assert (
                decode(save(drawing, format, transparency=transparency), LIMITS, at_least=10).image.getpixel((1, 1)) == (255,) * 3
            )

    def test_one_transparent_colour_of_a_plain_picture(self) -> None:
        for mode, clear in (("RGB", (0, 0, 0)), ("L", 0), ("1", 0)):
            image = decode(save(Image.new(mode, (30, 30)), "png", transparency=clear), LIMITS).image
            assert image.getpixel((5, 5)) == (255, 255, 255)

    def test_half_transparency_is_mixed(self) -> None:
        assert close(decode(save(Image.new("RGBA", (9, 9), (0, 0, 0, 128)), "png"), LIMITS).image.getpixel((4, 4)), (127,) * 3, 3)

    def test_one_bit_and_lab(self) -> None:
        assert decode(save(Image.new("1", (30, 30), 1), "tiff"), LIMITS).image.getpixel((3, 3)) == (255, 255, 255)
        lab = ImageCms.profileToProfile(scene(), ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), outputMode="LAB")
        assert lab and reason(save(lab, "tiff")) == "unsupported_format"

    def test_junk_profiles_do_no_harm(self) -> None:
        for format in ("jpeg", "png", "webp", "tiff"):
            assert is_scene(decode(save(scene(), format, icc_profile=b"no profile at all" * 9), LIMITS))


class TestFrames:
    @pytest.mark.parametrize("format", ["gif", "webp", "png", "tiff"])
    def test_the_first_frame_is_taken(self, format: str) -> None:
        later = [Image.new("RGB", (120, 80), (0, 0, 200))] * 3
        data = save(scene(), format, save_all=True, append_images=later)
        assert is_scene(decode(data, LIMITS))
        prepared = prepare_single(data, LIMITS)
        assert is_scene(decode(prepared.data, LIMITS))
        with Image.open(io.BytesIO(prepared.data)) as sent:
            assert getattr(sent, "n_frames", 1) == 1

    def test_mpo(self) -> None:
        data = save(scene(), "MPO", save_all=True, append_images=[Image.new("RGB", (120, 80))])
        decoded = decode(data, LIMITS)
        assert decoded.format == "jpeg" and is_scene(decoded)

    def test_thousands_of_frames_cost_one(self) -> None:
        data = save(
            Image.new("P", (500, 500)),
            "gif",
            save_all=True,
            append_images=[Image.new("P", (500, 500), n) for n in range(1, 60)],
            duration=9,
        )
        first = data.index(b"\x21\xf9")
        body = data[first:-1]
        assert decode(data[:first] + body * 30 + b";", LIMITS).width == 500


class TestReduced:
    def test_large_pictures_come_reduced_but_not_below_what_is_wanted(self) -> None:
        jpeg = save(scene(3000, 2000), "jpeg")
        png = save(scene(3000, 2000), "png")
        for data in (jpeg, png, save(scene(2000, 3000), "jpeg")):
            decoded = decode(data, LIMITS, at_least=200)
            assert 200 <= max(decoded.image.size) < 1500
            assert is_scene(decoded, (3000, 2000) if decoded.width > decoded.height else (2000, 3000))

    def test_strips_join_without_a_seam(self) -> None:
        ramp = Image.fromarray(np.tile(np.linspace(0, 255, 4000).astype(np.uint8)[:, None], (1, 3000)))
        for mode in ("LA", "P"):
            image = decode(save(ramp.convert(mode), "png"), LIMITS, at_least=300).image
            column = np.asarray(image)[:, 5, 0].astype(int)
            assert image.size == (750, 1000) and (np.diff(column) >= 0).all() and column[0] <= 2 and column[-1] >= 253

    def test_a_cut_file_is_found_also_when_reduced(self) -> None:
        data = photo(1, 800, 600)
        with pytest.raises(PictureFault):
            decode(data[: len(data) // 2] + b"\xff\xd9", LIMITS, at_least=1)


class TestPrepareSingle:
    @pytest.mark.parametrize("format", ["jpeg", "png", "webp"])
    def test_what_can_be_sent_is_sent_as_it_is(self, format: str) -> None:
        data = save(scene(), format)
        prepared = prepare_single(data, LIMITS)
        assert prepared.data is data
        assert (prepared.media_type, prepared.width, prepared.height) == (f"image/{format}", 120, 80)

    def test_what_cannot_is_a_jpeg_that_fits(self) -> None:
        for data in (
            save(scene(2400, 1600), "jpeg"), save(scene(2400, 1600), "png"), save(scene(2400, 1600), "bmp"), save(scene(), "gif"),
            save(scene().convert("L"), "jpeg"), save(scene().convert("CMYK"), "jpeg"), save(scene().convert("RGBA"), "png"),
        ):  # fmt: skip
            prepared = prepare_single(data, LIMITS)
            assert prepared.media_type == "image/jpeg" and prepared.format == "jpeg"
            assert max(prepared.width, prepared.height) in (120, 1024)
            with Image.open(io.BytesIO(prepared.data)) as sent:
                assert sent.format == "JPEG" and sent.mode == "RGB" and sent.size == (prepared.width, prepared.height)
                sent.load()

    def test_faults_are_faults_here_too(self) -> None:
        for data in (b"", b"<html>", save(Image.new("RGB", (1, 1)), "gif"), photo(1, 1600, 1200)[:90_000]):
            with pytest.raises(PictureFault):
                prepare_single(data, LIMITS)

    def test_thumbnails_are_small_jpegs(self) -> None:
        data = thumbnail(photo(3), LIMITS, 256)
        with Image.open(io.BytesIO(data)) as small:
            assert small.format == "JPEG" and small.size == (256, 192)
        assert len(data) < 16_384
        with Image.open(io.BytesIO(thumbnail(save(scene(), "png"), LIMITS, 256))) as small:
            assert small.size == (120, 80)

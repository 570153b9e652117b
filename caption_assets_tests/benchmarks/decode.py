"""Reading pictures: CPU time per picture of photo-like JPEGs and a PNG, beside Pillow alone and beside libjpeg-turbo alone.

`python -m caption_assets_tests.benchmarks.decode [rounds]`. `checked` is all that 1x1 needs of a picture that is sent as it
is: that it decodes to its last byte.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import simplejpeg
from PIL import Image

from caption_assets.config import ImagesConfig
from caption_assets.core.images import decode, prepare_single
from caption_assets.core.pictures.pixels import fitted, scaled
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.benchmarks.timing import cpu_medians
from caption_assets_tests.pictures import photo, save

QUICK = ()
LIMITS = ImagesConfig()


def pillow(data: bytes, side: int | None = None) -> Image.Image:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return image.resize(fitted(*image.size, side), Image.Resampling.BICUBIC) if side else image


def draft(data: bytes, side: int) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.draft("RGB", (side, side))
    return image.resize(fitted(*image.size, side), Image.Resampling.BICUBIC)


def ours(data: bytes, side: int) -> Image.Image:
    decoded = decode(data, LIMITS, side)
    return scaled(decoded.image, fitted(decoded.width, decoded.height, side))


def main(rounds: int = 5) -> None:
    half, large = photo(1, 832, 624), photo(2, 4000, 3000)
    png = save(pillow(photo(3, 1024, 768)), "png")
    cases: dict[str, dict[str, Callable[[], Any]]] = {
        "JPEG 0.5 MP, whole": {
            "Pillow": lambda: pillow(half),
            "ours": lambda: decode(half, LIMITS),
            "ours, checked": lambda: decode(half, LIMITS, 1),
            "simplejpeg": lambda: simplejpeg.decode_jpeg(half),
        },
        "JPEG 12 MP to 672 pixels": {
            "Pillow": lambda: pillow(large, 672),
            "Pillow, draft": lambda: draft(large, 672),
            "ours": lambda: ours(large, 672),
            "simplejpeg": lambda: simplejpeg.decode_jpeg(large, min_width=672, min_factor=2),
        },
        "PNG 0.8 MP, whole": {
            "Pillow": lambda: pillow(png),
            "ours": lambda: decode(png, LIMITS),
            "ours, checked": lambda: decode(png, LIMITS, 1),
        },
        "JPEG 0.5 MP, prepared to be sent as it is": {"ours": lambda: prepare_single(half, LIMITS)},
    }
    print(f"{'CPU ms a picture':45}{'median':>8}{'of Pillow':>11}")
    for case, ways in cases.items():
        times = cpu_medians({name: (lambda way=way: [way() for _ in range(5)]) for name, way in ways.items()}, rounds)
        for name, time in times.items():
            ratio = f"{time / times['Pillow']:11.2f}" if "Pillow" in times else ""
            print(f"{case + ': ' + name:60}"[:60].rstrip().ljust(58), f"{time / 5:8.2f}{ratio}")
        each = {name: time / 5 for name, time in times.items()}
        floor = {"floor": each["simplejpeg"], "floor_way": "simplejpeg"} if "simplejpeg" in each else {}
        report(Figure(case, "CPU ms", each["ours"], each.get("Pillow"), "Pillow", **floor))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

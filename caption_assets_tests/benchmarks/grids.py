"""One 2x2 grid of four photo-like JPEGs of 1.9 megapixels: CPU time, file size, likeness.

`python -m caption_assets_tests.benchmarks.grids [rounds]`. The obvious way: Pillow decodes, LANCZOS scales, WebP quality 90 with
the usual method 4. The floor: simplejpeg decodes, the cheapest filter that interpolates, WebP with the least effort that makes
no larger file. PSNR is against the obvious way's grid before it is encoded. Wanted: ours at most 0.60 of the obvious
way at equal file size, and 1.4 times the floor.
"""

from __future__ import annotations

import io
import sys

import numpy as np
import simplejpeg
from PIL import Image

from caption_assets.config import GridConfig, ImagesConfig
from caption_assets.core.grids import cell_image, compose, grid_size, label_image
from caption_assets.core.images import decode
from caption_assets.core.pictures.pixels import fitted
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.benchmarks.timing import cpu_medians
from caption_assets_tests.pictures import photo

QUICK = ()
GRID, LIMITS = GridConfig(), ImagesConfig()


def paste_all(pictures: list[Image.Image]) -> Image.Image:
    canvas = Image.new("RGB", grid_size(GRID), (255, 255, 255))
    for index, picture in enumerate(pictures):
        row, col = divmod(index, GRID.cols)
        left, top = (GRID.gap + place * (GRID.cell_size + GRID.gap) for place in (col, row))
        canvas.paste(picture, (left + (GRID.cell_size - picture.width) // 2, top + (GRID.cell_size - picture.height) // 2))
        canvas.paste(label_image(index + 1, GRID.label_font_size), (left, top))
    return canvas


def webp(canvas: Image.Image, method: int) -> bytes:
    sink = io.BytesIO()
    canvas.save(sink, "WEBP", quality=GRID.quality, method=method)
    return sink.getvalue()


def plain_canvas(photos: list[bytes]) -> Image.Image:
    pictures = [Image.open(io.BytesIO(data)).convert("RGB") for data in photos]
    sizes = [fitted(*picture.size, GRID.cell_size) for picture in pictures]
    return paste_all([p.resize(size, Image.Resampling.LANCZOS) for p, size in zip(pictures, sizes, strict=True)])


def obvious(photos: list[bytes]) -> bytes:
    return webp(plain_canvas(photos), 4)


def ours(photos: list[bytes]) -> bytes:
    return compose([cell_image(decode(data, LIMITS, GRID.cell_size), GRID) for data in photos], GRID)


def floor(photos: list[bytes], method: int) -> bytes:
    pictures = [Image.fromarray(simplejpeg.decode_jpeg(data)) for data in photos]
    small = [p.resize(fitted(*p.size, GRID.cell_size), Image.Resampling.BILINEAR) for p in pictures]
    return webp(paste_all(small), method)


def psnr(data: bytes, wanted: Image.Image) -> float:
    with Image.open(io.BytesIO(data)) as image:
        error = np.asarray(image.convert("RGB"), np.float32) - np.asarray(wanted, np.float32)
    return float(10 * np.log10(255**2 / np.mean(error**2)))


def main(rounds: int = 5) -> None:
    photos = [photo(seed) for seed in range(4)]
    wanted, limit = plain_canvas(photos), len(ours(photos)) * 1.01
    method = next(m for m in range(7) if len(floor(photos, m)) <= limit)
    ways = {"obvious": lambda: obvious(photos), "ours": lambda: ours(photos), "floor": lambda: floor(photos, method)}
    times = cpu_medians(ways, rounds)
    print(f"{'':10}{'CPU ms/grid':>12}{'of obvious':>12}{'of floor':>10}{'bytes':>10}{'PSNR dB':>9}")
    for name, way in ways.items():
        data = way()
        ratios = f"{times[name] / times['obvious']:12.2f}{times[name] / times['floor']:10.2f}"
        print(f"{name:10}{times[name]:12.0f}{ratios}{len(data):10}{psnr(data, wanted):9.2f}")
    print(f"floor: WebP method {method}; medians of {rounds}")
    beside = {"obvious": times["obvious"], "obvious_way": "Pillow, LANCZOS, WebP method 4", "of_obvious": 0.6}
    beside |= {"floor": times["floor"], "floor_way": f"simplejpeg, bilinear, WebP method {method}", "of_floor": 1.4}
    report(Figure("grid of four 1.9 MP photos", "CPU ms", times["ours"], **beside, peers={"pyvips, WebP effort 2": 292}))
    size, plain = len(ours(photos)), len(obvious(photos))
    report(Figure("its file", "bytes", size, plain, "WebP method 4", of_obvious=1.01))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""The sample collection of `make demo`: coloured shapes in tars, behind a catalog and in a folder, with some faults among them.

    python -m caption_assets.demo.collection FOLDER

writes sources/ (never changed afterwards), truth.jsonl (each record's caption or the reason why it has none) and, last,
caption_assets.yaml. A folder that has its caption_assets.yaml is complete and left as it is.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import shutil
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from PIL import Image

from caption_assets.configfile import DEFAULT_PATH
from caption_assets.demo.shapes import ALL_SPECS, Picture, Spec

TRUTH = "truth.jsonl"
HTML = b"<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head><body>The picture you want is gone.</body></html>\n"
ASPECTS = ((1, 1), (1, 1), (4, 3), (3, 4), (5, 4), (4, 5), (3, 2), (2, 3))
FORMATS = (("jpg", "JPEG"), ("jpg", "JPEG"), ("png", "PNG"), ("webp", "WEBP"))
UPRIGHT_BY_TURNING = 6
"""EXIF orientation of a picture whose pixels lie on their left side."""
CONFIG = """\
# The demo: coloured shapes, captioned by the tiny model inside the package. See the README for pictures and models of your own.
store: ./store
engine:
  model: demo
  replicas: 1
  concurrency: 32
  idle_stop_s: 300
  server_args: {max_model_len: 1024, max_num_seqs: 32}
datasets:
  - name: shapes_tars                 # WebDataset tars, four pictures to a request
    source: ./sources/tars/
    grid: &grid {rows: 2, cols: 2, cell_size: 128, gap: 6, label_font_size: 20}
    sampling: &greedy {temperature: 0, top_p: 1, max_tokens: 24, repetition_penalty: 1}
    prompts:
      - {name: caption, text: Describe the picture in one sentence.}
  - name: shapes_catalog              # a JSONL catalog; the prompt uses its fields, a second output is made from the first
    source: ./sources/catalog/catalog.jsonl
    shard_size: 16
    grid: *grid
    sampling: *greedy
    prompts:
      - {name: caption, text: "Describe the picture in one sentence. Its file is called {record.name}."}
      - {name: title, text: "Rewrite as a title: {output.caption}", image: false}
  - name: shapes_folder               # a folder of pictures, one to a request
    source: ./sources/folder/
    format: images
    grid: {rows: 1, cols: 1}
    sampling: *greedy
    prompts:
      - {name: caption, text: Describe the picture in one sentence.}
"""
"""The demo's caption_assets.yaml: grids, wording and sampling that the demo model was trained for."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What must become of one record: exactly one of caption and reason is set."""

    dataset: str
    record_id: str
    caption: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A picture file's bytes, extension and what it shows; spec is None where reason says why it shows nothing."""

    data: bytes
    extension: str
    spec: Spec | None = None
    reason: str | None = None

    def truth(self, dataset: str, record_id: str) -> Truth:
        return Truth(dataset, record_id, self.spec.caption if self.spec else None, self.reason)


def make_collection(
    folder: str | Path,
    seed: int = 0,
    *,
    tars: int = 3,
    per_tar: int = 12,
    catalog_rows: int = 24,
    folder_images: int = 16,
    faults: bool = True,
) -> list[Truth]:
    """Writes the collection into `folder` and returns the truth. The same arguments give the same bytes.

    Counts are of good pictures, each of another caption while there are new ones; faults and duplicates come on top.
    """
    folder = Path(folder)
    shutil.rmtree(folder / "sources", ignore_errors=True)
    files = PictureFiles(random.Random(seed))
    truth = [
        *_tars(folder / "sources" / "tars", files, tars, per_tar, faults),
        *_catalog(folder / "sources" / "catalog", files, catalog_rows, faults),
        *_images(folder / "sources" / "folder", files, folder_images, faults),
    ]
    (folder / TRUTH).write_text("".join(json.dumps(asdict(t)) + "\n" for t in truth), encoding="utf-8")
    (folder / DEFAULT_PATH).write_text(CONFIG, encoding="utf-8")
    return truth


class PictureFiles:
    """Picture files one after the other, each with another caption until all 192 were used."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._deck: list[Spec] = []

    def good(self, extension: str | None = None) -> File:
        if not self._deck:
            self._deck = self.rng.sample(ALL_SPECS, len(ALL_SPECS))
        spec = self._deck.pop()
        wide, high = self.rng.choice(ASPECTS)
        unit = self.rng.randint(96, 320) / max(wide, high)
        image = Picture.random(self.rng, spec, round(wide * unit), round(high * unit)).image()
        extension, format = self.rng.choice([f for f in FORMATS if extension in (None, f[0])])
        return File(_encoded(image, format, turned=format == "JPEG" and self.rng.random() < 0.2), extension, spec)

    def truncated(self) -> File:
        whole = self.good("jpg")
        return File(whole.data[: len(whole.data) * 2 // 3], "jpg", reason="decode_error")


EMPTY = File(b"", "jpg", reason="empty_file")
PAGE = File(HTML, "jpg", reason="not_an_image")


def _encoded(image: Image.Image, format: str, turned: bool) -> bytes:
    exif = Image.Exif()
    if turned:
        exif[0x0112] = UPRIGHT_BY_TURNING
        image = image.transpose(Image.Transpose.ROTATE_90)
    sink = io.BytesIO()
    image.save(sink, format, **({} if format == "PNG" else {"quality": 90}), **({"exif": exif} if turned else {}))
    return sink.getvalue()


def _tars(folder: Path, files: PictureFiles, tars: int, per_tar: int, faults: bool) -> Iterator[Truth]:
    """WebDataset tars; every picture has a .json or .txt beside it. One fault for each tar in turn."""
    folder.mkdir(parents=True)
    for number in range(tars):
        samples = [files.good() for _ in range(per_tar)]
        if faults:
            extra = (samples[0], files.truncated(), EMPTY)[number % 3]
            samples.insert(files.rng.randint(1, len(samples)), extra)
        path = folder / f"shapes-{number:05d}.tar"
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for index, sample in enumerate(samples):
                key = f"{index:06d}"
                _add(tar, f"{key}.{sample.extension}", sample.data)
                if index % 2:
                    _add(tar, f"{key}.txt", f"picture {index} of tar {number}".encode())
                else:
                    _add(tar, f"{key}.json", json.dumps({"title": f"Sample {key}", "tar": number}).encode())
                yield sample.truth("shapes_tars", f"{path.name}#{key}.{sample.extension}")


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _catalog(folder: Path, files: PictureFiles, rows: int, faults: bool) -> Iterator[Truth]:
    """catalog.jsonl and the images/ its rows point to; faults are lines in its midst, a copy its first line once more."""
    (folder / "images").mkdir(parents=True)
    lines: list[tuple[str, File]] = []
    for number in range(rows):
        sample = files.good()
        uri = f"images/{number:04d}.{sample.extension}"
        (folder / uri).write_bytes(sample.data)
        # Numbers above 2**53: a reader that goes through a float would change them.
        lines.append(
            (json.dumps({"id": 2**53 + 2 * number + 1, "uri": uri, "name": f"IMG_{number:04d}.{sample.extension}"}), sample)
        )
    if faults:
        middle = rows // 2
        gone = json.dumps({"id": 1, "uri": "images/gone.jpg", "name": "gone.jpg"})
        lines[middle:middle] = [
            ('{"id": 2, "uri": "images/0000.jpg", "name": "cut off', File(b"", "", reason="bad_json_line")),
            (gone, File(b"", "", reason="missing_image")),
            (json.dumps({"id": 3, "name": "nowhere.jpg"}), File(b"", "", reason="missing_uri")),
            lines[0],
        ]
    (folder / "catalog.jsonl").write_text("".join(line + "\n" for line, _ in lines), encoding="utf-8")
    for number, (_, sample) in enumerate(lines, 1):
        yield sample.truth("shapes_catalog", f"catalog.jsonl#{number}")


def _images(folder: Path, files: PictureFiles, images: int, faults: bool) -> Iterator[Truth]:
    """Pictures in two subfolders; beside them, with faults, a copy, a page that calls itself jpg and a file without bytes."""
    found = {f"{('a', 'b')[n % 2]}/{n:04d}": files.good() for n in range(images)}
    if faults:
        found |= {"b/copy": found["a/0000"], "b/page": PAGE, "b/zero": EMPTY}
    for stem, sample in found.items():
        path = folder / f"{stem}.{sample.extension}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sample.data)
        yield sample.truth("shapes_folder", f"{stem}.{sample.extension}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m caption_assets.demo.collection", description="make the demo's collection")
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if Path(options.folder, DEFAULT_PATH).exists():
        print(f"{options.folder}: the sample collection is there already")
        return 0
    truth = make_collection(options.folder, options.seed)
    good = sum(t.caption is not None for t in truth)
    print(f"{options.folder}: {good} pictures of coloured shapes and {len(truth) - good} faults")
    return 0


if __name__ == "__main__":
    sys.exit(main())

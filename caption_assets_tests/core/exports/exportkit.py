"""A merged collection with everything that breaks exports: dots, other scripts, one stem in two folders, emoji, long captions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from caption_assets.core.exports.exporting import ExportResult, export
from caption_assets.core.exports.job import Options
from caption_assets.core.exports.selection import Selection
from caption_assets.core.objectstore import ObjectStore
from caption_assets_tests.core.mergekit import ONE, Collection, words
from caption_assets_tests.core.shardkit import jpeg, write_tar
from caption_assets_tests.pictures import noise, save

SYLLABLES = [
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ha",
    "je",
    "ki",
    "lo",
    "mu",
    "na",
    "pe",
    "ri",
    "so",
    "tu",
    "va",
    "we",
    "xi",
    "yo",
    "zu",
]
LONG = (
    "Old map of towns: "
    + ", ".join(f"{a}{b}{c}"[0:].title() for a in SYLLABLES[:8] for b in SYLLABLES[8:] for c in "rnstl")
    + "."
)
PICTURES = {
    "cats/001.jpg": jpeg(1, 20),
    "cats/001.png": save(noise(2), "png"),
    "dogs/001.jpg": jpeg(3, 40),
    "rel.v1.0/22.05.png": save(noise(4), "png"),
    "rel.v1.0/22.10.png": save(noise(5), "png"),
    "фото/кот на окне.jpg": jpeg(6, 60),
    "写真/猫[1] {x}*.JPG": jpeg(7),
    "100% sure?.webp": save(noise(8), "webp"),
    "__meta__/a#b~c.jpg": jpeg(9),
    "twice.jpg": jpeg(6, 60),
    "broken.jpg": b"\xff\xd8\xff\xe0 no picture",
}
SAID = {
    "cats/001.jpg": "A cat called “Mimi” 🐈‍⬛ sits on a sill, looks out and waits.",
    "cats/001.png": LONG,
    "twice.jpg": "Кошка сидит на подоконнике, за окном идёт дождь.",
    "写真/猫[1] {x}*.JPG": "窓辺に座っている猫の写真です。外は雨が降っています。",
    "dogs/001.jpg": 'First line of a sign,\nthen a second line; "quoted", with commas.',
    "rel.v1.0/22.10.png": "=SUM(A1) is written on a whiteboard in a bright meeting room.",
}


def said(record_id: str) -> str:
    return SAID.get(record_id) or words(record_id)


def pictures(root: Path, place: str = "", objects: ObjectStore | None = None) -> tuple[Collection, list[str]]:
    """A folder source in two shards, captioned and merged."""
    collection = Collection(root, {"grid": ONE, "shard_size": 6}, objects or ObjectStore(), place).add(PICTURES)
    shards = collection.prepare()
    for shard in shards:
        collection.caption_all(shard, said)
        collection.merge(shard)
    return collection, shards


def tars(root: Path, count: int = 2) -> tuple[Collection, list[str]]:
    """Tars that use the same keys for different pictures, captioned and merged."""
    collection = Collection(root, {"grid": ONE})
    for number in range(count):
        write_tar(collection.source / f"part-{number}.tar", [(f"{n:03d}", jpeg(10 * number + n)) for n in range(4)])
    shards = collection.prepare()
    for shard in shards:
        collection.caption_all(shard)
        collection.merge(shard)
    return collection, shards


def merged_texts(collection: Collection, shards: list[str], output: str = "caption") -> dict[str, str]:
    return {row["record_id"]: row[output] for shard in shards for row in collection.rows(collection.layout.merged(shard))}


def run(
    collection: Collection,
    shards: list[str],
    format: str,
    to: Path | str,
    options: Options | None = None,
    **selection: Any,
) -> ExportResult:
    return export(
        collection.objects,
        collection.layout,
        collection.spec,
        shards,
        format,
        str(to),
        Selection(**selection),
        options,
    )

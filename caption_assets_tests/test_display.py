"""What models and records say in Dagster's metadata and on the terminal: text, and nothing else."""

import base64
import io
import re

import pytest
from PIL import Image

from caption_assets.core.objectstore import ObjectStore
from caption_assets.display import contact_sheet, markdown, plain, plain_metadata
from caption_assets_tests.core.mergekit import Collection
from caption_assets_tests.pictures import photo

HOSTILE = "<img src=x onerror=alert(1)> ![a](http://127.0.0.1/x) [b](javascript:alert(1)) http://e.test | `c` \u202egpj\n\n# d"


def sheet(collection: Collection, text: str = "A harbour.") -> str:
    samples = [
        {"record_id": f"{n}.jpg", "uri": uri, "source_uri": uri, "source_index": 1, "byte_offset": None, "byte_length": None}
        | {"text": text, "reason": None}
        for n, uri in enumerate(f"{collection.source}/{n}.jpg" for n in range(4))
    ]
    shown = contact_sheet(ObjectStore(), collection.spec, samples)
    return shown["pictures"].value if shown else ""


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    return Collection(tmp_path_factory.mktemp("display")).add({f"{n}.jpg": photo(n, 500, 500) for n in range(4)})


def test_photos_come_as_four_thumbnails_of_16_kb_together(collection):
    pictures = [base64.b64decode(data) for data in re.findall(r"data:image/jpeg;base64,([^)]*)", sheet(collection))]
    assert len(pictures) == 4 and sum(map(len, pictures)) <= 16_384
    for data in pictures:
        image = Image.open(io.BytesIO(data))
        assert image.format == "JPEG" and max(image.size) >= 64


def test_a_picture_that_is_gone_or_changed_is_left_out(tmp_path):
    collection = Collection(tmp_path).add({"0.jpg": photo(0, 300, 200), "1.jpg": b"", "2.jpg": b"<html>"})
    assert sheet(collection).count("data:image") == 1


def test_hostile_text_is_one_cell_of_text(collection):
    shown = sheet(collection, HOSTILE)
    assert len(shown.splitlines()) == 6, "a heading, a rule, and one line per picture"
    cell = markdown(HOSTILE)
    assert cell in shown and "\u202e" not in cell
    bare = re.sub(r"\\.", "", cell)
    assert not re.search(r"[<>`|\[\]!:/#]", bare), "nothing that Markdown, HTML or a finder of links would take for its own"


def test_figures_are_as_long_as_they_tell_something():
    shown = plain_metadata({"coverage": 12 / 13, "engine_seconds": 0.26, "records": 1_234_567, "faults": {}, "nothing": None})
    assert shown == {"coverage": 0.923077, "engine_seconds": 0.26, "records": 1_234_567}
    rows = plain_metadata({"reasons": {"too_short": 1, "refusal": 2}})["reasons"].value.records
    assert [row.data for row in rows] == [{"reason": "refusal", "records": 2}, {"reason": "too_short", "records": 1}]


def test_control_codes_never_reach_a_terminal():
    assert plain("\x1b]0;title\x07\x1b[2J\u202e\x9b1m") == "\ufffd]0;title\ufffd\ufffd[2J\ufffd\ufffd1m"

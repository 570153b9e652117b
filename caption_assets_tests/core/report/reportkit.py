"""A captioned collection with everything that a report has to cope with, and its pages taken apart."""

from __future__ import annotations

import base64
import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caption_assets.core.replies.text import clean_text
from caption_assets.core.report.datasetpage import Report, write_dataset_report
from caption_assets.core.report.shardpage import Recipe
from caption_assets_tests.core.mergekit import PROMPT, Collection, words
from caption_assets_tests.pictures import noise, save

HOSTILE = {
    "0000.jpg": "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script> said of a harbour",
    "0001.jpg": "![boats](http://127.0.0.1:9/pixel.png) and [a lamp](javascript:alert(1)) said of a harbour",
    "0002.jpg": "</script></style></textarea><svg onload=\"document.title='pwned'\"> said of a harbour --> ]]> {{ 7 * 7 }}",
    "0003.jpg": "It is called \u202egpj.exe\u202c by its owner, \u2066and more\u2069 of a harbour",
    "0004.jpg": '" onmouseover="document.title=\'pwned\'" \' style="background:url(http://127.0.0.1:9/x)" of a harbour',
}
REFUSED = "I'm sorry, but I can't help with that."
TITLES = {"name": "title", "text": "Make a title: {output.caption}", "image": False}
EVIL_NAME = "0005<b onclick=x>&amp;\u202egpj.jpg"


def recipe_of(collection: Collection) -> Recipe:
    config = collection.config
    return Recipe(collection.spec, config.engine_of(collection.spec), collection.recipes, None)


def make_collection(root: Path) -> Collection:
    """Two shards of 20 and a third that nobody has captioned: hostile captions and names, two source faults, three refusals."""
    collection = Collection(root, {"shard_size": 20, "prompts": [{"text": PROMPT}, TITLES]})
    files = {f"{n:04d}.jpg": save(noise(n), "JPEG") for n in range(49)}
    files |= {"0007.jpg": b"", "0008.jpg": b"<html>not a picture</html>", EVIL_NAME: save(noise(99), "PNG")}
    collection.add(files)
    for shard in collection.prepare()[:2]:
        caption(collection, shard)
        collection.merge(shard)
    return collection


def caption(collection: Collection, shard: str) -> None:
    """One request per picture, two a second, each taking 1.5 s; then the titles."""
    rows = [row for row in collection.rows(collection.layout.mapping(shard)) if row["reason"] is None]
    start = 1_800_000_000 + 1000 * int(shard[-2:])
    replies = []
    for n, row in enumerate(rows):
        record = row["record_id"]
        said = REFUSED if record in ("0012.jpg", "0013.jpg", "0030.jpg") else HOSTILE.get(record, words(record))
        replies.append(collection.reply([record], said, sent_at=start + n / 2, latency_ms=1500.0))
    collection.say(shard, replies)
    asked = {reply.record_ids[0]: f"Make a title: {clean_text(reply.reply)[0]}" for reply in replies}
    titles = [
        collection.reply([record], f"A title for the picture {record}", output="title", asked=text, sent_at=start + 100.0)
        for record, text in asked.items()
    ]
    collection.say(shard, titles)


def write(collection: Collection, shards: list[str], left_out: list[str], **options: Any) -> Report:
    return write_dataset_report(collection.objects, collection.layout, recipe_of(collection), shards, left_out, **options)


@dataclass
class Page:
    """A page as text."""

    text: str

    @classmethod
    def of(cls, uri: str) -> Page:
        return cls(Path(uri).read_text("utf-8"))

    @property
    def seen(self) -> str:
        """What a reader sees, tags away and entities decoded."""
        body = self.text[self.text.index("<body>") : self.text.index("<script>")]
        return html.unescape(re.sub(r"<[^>]*>", " ", body))

    @property
    def tags(self) -> set[str]:
        return set(re.findall(r"<([a-zA-Z][a-zA-Z0-9]*)", self.text))

    @property
    def addresses(self) -> list[str]:
        """Values of all attributes that could load something or lead somewhere."""
        return [html.unescape(value) for value in re.findall(r'\s(?:src|href|srcset|action|poster)="([^"]*)"', self.text)]

    def cards(self) -> dict[str, tuple[list[str], str]]:
        """record_id → its groups, and its HTML."""
        found = {}
        for groups, body in re.findall(r'<article data-item data-groups="([^"]*)">(.*?)</article>', self.text, re.DOTALL):
            name = html.unescape(re.search(r"<summary[^>]*>(.*?)</summary>", body, re.DOTALL)[1])
            found[name] = (groups.split(), body)
        return found

    def pictures(self) -> list[bytes]:
        return [base64.b64decode(data) for data in re.findall(r'src="data:image/jpeg;base64,([^"]*)"', self.text)]

    def plots(self) -> list[str]:
        """The SVG of each plot."""
        return [base64.b64decode(data).decode() for data in re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', self.text)]

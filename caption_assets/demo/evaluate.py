"""How often the demo model tells the truth: greedy, through vLLM, in the demo's own grids and wording.

    python -m caption_assets.demo.evaluate [--pictures 1000] [--cells 2000] [--model FOLDER] [--seed N]

Pictures are of sizes, aspects and encodings as in the demo's collection, from a seed that neither it nor the training uses. vLLM
is started, or found running, as for any other run. Exit 1 below the targets: 99.5 % of single pictures and 99 % of cells and of
titles (made from a caption's text alone) exact, no caption in a wrong cell.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from caption_assets.config import Config, DatasetConfig, EngineConfig
from caption_assets.configfile import DEFAULT_PATH, load_config
from caption_assets.core.grids import cell_image, compose
from caption_assets.core.images import MEDIA_TYPES, decode, prepare_single
from caption_assets.core.parsing import parse_reply
from caption_assets.core.prompts import grid_text, render
from caption_assets.core.recipes import sampling_for
from caption_assets.demo.collection import CONFIG, File, PictureFiles
from caption_assets.demo.shapes import ALL_SPECS, Spec
from caption_assets.engines import open_engine
from caption_assets.engines.base import ChatReply, ChatRequest, Session

TARGETS = {"single pictures": 0.995, "cells": 0.99, "titles": 0.99}
EXAMPLES = 8


@dataclass(frozen=True, slots=True)
class Question:
    """A request and what its cells show; kind is a key of TARGETS."""

    kind: str
    request: ChatRequest
    specs: tuple[Spec, ...]


class Questions:
    """Requests as the shard loop sends them."""

    def __init__(self, config: Config, seed: int) -> None:
        self._config = config
        self._rng = random.Random(f"held out {seed}")
        self._files = PictureFiles(self._rng)

    def singles(self, count: int) -> Iterator[Question]:
        spec = self._config.dataset("shapes_folder")
        for number in range(count):
            file = self._files.good()
            sent = prepare_single(file.data, spec.images)
            request = ChatRequest(
                f"single-{number}",
                spec.prompts[0].text,
                sent.data,
                sent.media_type,
                (),
                sampling_for(spec, spec.prompts[0], 1, 1),
            )
            yield _question("single pictures", request, [file])

    def grids(self, cells: int) -> Iterator[Question]:
        """Grids of one to four pictures, most of them full; half with a prompt that differs from cell to cell."""
        while cells > 0:
            filled = min(cells, self._rng.choice((4, 4, 4, 4, 1, 2, 3)))
            yield self._grid(self._config.dataset(("shapes_tars", "shapes_catalog")[cells % 2]), filled, f"grid-{cells}")
            cells -= filled

    def titles(self, count: int) -> Iterator[Question]:
        spec = self._config.dataset("shapes_catalog")
        caption, title = spec.prompts
        for number in range(count):
            shown = self._rng.choice(ALL_SPECS)
            text, _ = render(title.text, {}, {caption.name: shown.caption})
            yield Question(
                "titles", ChatRequest(f"title-{number}", text, None, None, (), sampling_for(spec, title, 1, 1)), (shown,)
            )

    def _grid(self, spec: DatasetConfig, filled: int, name: str) -> Question:
        files = [self._files.good() for _ in range(filled)]
        cells = [cell_image(decode(file.data, spec.images, at_least=spec.grid.cell_size), spec.grid) for file in files]
        texts = [render(spec.prompts[0].text, {"name": f"IMG_{self._rng.randrange(10_000)}.jpg"}, {})[0] for _ in files]
        slots = range(1, filled + 1)
        request = ChatRequest(
            name,
            grid_text(slots, texts),
            compose(cells, spec.grid),
            MEDIA_TYPES[spec.grid.format],
            tuple(map(str, slots)),
            sampling_for(spec, spec.prompts[0], filled, 1),
        )
        return _question("cells", request, files)


def _question(kind: str, request: ChatRequest, files: Sequence[File]) -> Question:
    return Question(kind, request, tuple(file.spec for file in files if file.spec))


@dataclass(slots=True)
class Score:
    """Answers of one kind: how many; of them word for word right; right in colour and background; of another cell's picture."""

    asked: int = 0
    exact: int = 0
    colours: int = 0
    misplaced: int = 0


def score(questions: Sequence[Question], replies: Sequence[ChatReply]) -> tuple[dict[str, Score], Counter[str]]:
    """The figures of each kind, and how often each mistake was made."""
    scores, mistakes = {kind: Score() for kind in TARGETS}, Counter[str]()
    for question, reply in zip(questions, replies, strict=True):
        slots, grid = range(1, len(question.specs) + 1), bool(question.request.json_keys)
        cells = parse_reply(reply.reply, reply.finish_reason, reply.error, slots, grid)
        captions = [spec.caption for spec in question.specs]
        for slot, spec in zip(slots, question.specs, strict=True):
            said, of = cells[slot].text or f"[{cells[slot].reason}]", scores[question.kind]
            words = said.split()
            of.asked += 1
            of.exact += said == spec.caption
            of.colours += len(words) == 7 and (words[1], words[5]) == (spec.colour, spec.background)
            if said != spec.caption:
                of.misplaced += said in captions
                mistakes[f"{question.kind}: said {said!r} for {spec.caption!r}"] += 1
    return scores, mistakes


async def answers(engine: EngineConfig, questions: Sequence[Question]) -> list[ChatReply]:
    """All replies, in order."""
    opened = open_engine(engine)
    try:
        async with opened.session() as session:
            return await _ask_all(session, questions)
    finally:
        opened.close()


async def _ask_all(session: Session, questions: Sequence[Question]) -> list[ChatReply]:
    free = asyncio.Semaphore(session.concurrency)

    async def ask(question: Question) -> ChatReply:
        async with free:
            return await session.ask(question.request)

    return await asyncio.gather(*map(ask, questions))


def demo_config(model: str) -> Config:
    """The config of `make demo`, with this model."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / DEFAULT_PATH
        file.write_text(CONFIG, encoding="utf-8")
        config = load_config(file)
    return config.model_copy(update={"engine": config.engine.model_copy(update={"model": model})})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m caption_assets.demo.evaluate", description="how often the demo model is right"
    )
    parser.add_argument("--pictures", type=int, default=1000, help="single pictures (and a fifth as many titles)")
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--model", default="demo", help="demo, or a folder, such as one that demo.train wrote")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    config = demo_config(options.model)
    ask = Questions(config, options.seed)
    questions = [*ask.singles(options.pictures), *ask.grids(options.cells), *ask.titles(options.pictures // 5)]
    started = time.monotonic()
    replies = asyncio.run(answers(config.engine, questions))
    scores, mistakes = score(questions, replies)
    print(f"{len(questions)} requests in {time.monotonic() - started:.0f} s")
    for mistake, times in mistakes.most_common(EXAMPLES):
        print(f"    {times} x {mistake}")
    reached = [_reached(kind, scores[kind]) for kind in TARGETS]
    return 0 if all(reached) else 1


def _reached(kind: str, of: Score) -> bool:
    """Prints one line; whether it is good enough."""
    reached = of.exact >= TARGETS[kind] * of.asked and of.misplaced == 0
    print(
        f"{kind}: {of.exact} of {of.asked} exact, colour and background right in {of.colours}, in a wrong cell {of.misplaced}"
        f" (target {TARGETS[kind]:.1%}: {'reached' if reached else 'MISSED'})"
    )
    return reached


if __name__ == "__main__":
    sys.exit(main())

"""How fast replies are read: `python -m caption_assets_tests.benchmarks.parse [--replies N]`.

CPU time, medians of five, of parse_reply and of parse_reply with all default filters, beside json.loads of the bare JSON (the
floor, which checks nothing) and json-repair (the obvious way with models: it closes cut strings, so that half captions pass).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Callable
from typing import Any

from caption_assets.config import FiltersConfig
from caption_assets.core.filters.sentences import word_set
from caption_assets.core.parsing import parse_reply
from caption_assets.core.quality import judge
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.benchmarks.timing import Median

QUICK = ("--replies", 2000)
SLOTS = (1, 2, 3, 4)
PROMPT = "Describe the picture in one or two plain sentences. Name the main subject and its colour. Do not guess names."
POOLS = {
    "a": word_set(
        """
        red blue tall old wooden small bright crowded narrow quiet golden rusty striped empty broken distant snowy green round
        pale dark young elderly smiling tired curious sleepy barefoot bearded
        """
    ),
    "p": word_set("woman man child fisherman baker cyclist student nurse farmer dancer sailor painter gardener climber"),
    "d": word_set("mends carries paints watches repairs photographs sketches admires passes lifts measures"),
    "t": word_set(
        """
        boat bicycle lamp bridge bottle basket ladder window fountain umbrella tram kite barrel bench piano suitcase tent statue
        market stall tower fence wheelbarrow mirror clock garden hedge chimney staircase
        """
    ),
    "l": word_set("harbour square kitchen meadow station workshop courtyard library beach vineyard street theatre barn valley"),
}
FRAMES = (
    "A {a} {p} in a {a} coat {d} a {a} {t} near the {l}, while two {a} dogs sleep under a {t} and a {a} gull circles above.",
    "The photo shows a {a} {t} and a {a} {t} in front of a {l}. In the background, a {a} {p} {d} a {t} in warm evening light.",
    "On the left stands a {a} {p} with a {a} {t}; on the right, a {p} {d} another {t}. Behind them lies a {a} {l} under clouds.",
)


def caption(rng: random.Random) -> str:
    """About 120 characters, such as a model writes."""
    return re.sub(r"\{(\w)\}", lambda match: rng.choice(sorted(POOLS[match[1]])), rng.choice(FRAMES))


def replies(count: int, shape: Callable[[str, random.Random], str]) -> list[str]:
    rng = random.Random(7)
    return [shape(json.dumps({str(slot): caption(rng) for slot in SLOTS}), rng) for _ in range(count)]


SHAPES: dict[str, Callable[[str, random.Random], str]] = {
    "bare JSON": lambda body, _: body,
    "fenced, with prose": lambda body, _: f"Here are the captions:\n\n```json\n{body}\n```\nLet me know if you need more.",
    "trailing comma": lambda body, _: body[:-1] + ",\n}",
    "cut": lambda body, rng: body[: rng.randrange(len(body))],
}


def cpu_us(work: Callable[[str], Any], texts: list[str]) -> Median:
    """Microseconds of CPU a reply, the median of five rounds."""
    times = []
    for _ in range(5):
        start = time.process_time()
        for text in texts:
            work(text)
        times.append(time.process_time() - start)
    return Median(times) / (len(texts) / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replies", type=int, default=4000)
    count = parser.parse_args().replies
    from json_repair import loads as repair

    filters, prompts = FiltersConfig(), dict.fromkeys(SLOTS, PROMPT)  # type: ignore[call-arg]
    floor = cpu_us(json.loads, replies(count, SHAPES["bare JSON"]))
    print(f"{count} replies of four captions of about 120 characters; CPU microseconds a reply, median of 5")
    heads = ("json.loads", "json-repair", "parse", "replies/s", "to floor", "to repair", "+ filters", "captions/s")
    print(f"{'reply':20}", *(f"{head:>11}" for head in heads))
    for name, shape in SHAPES.items():
        texts = replies(count, shape)
        finish = "length" if name == "cut" else "stop"
        repaired = cpu_us(repair, texts[: count // 10])
        parsed = cpu_us(lambda text, finish=finish: parse_reply(text, finish, None, SLOTS, True), texts)
        judged = cpu_us(lambda text, finish=finish: judge(parse_reply(text, finish, None, SLOTS, True), filters, prompts), texts)
        figures = (floor, repaired, parsed, 1e6 / parsed, parsed / floor, parsed / repaired, judged, len(SLOTS) * 1e6 / judged)
        print(f"{name:20}", *(f"{figure:11.0f}" if figure > 1000 else f"{figure:11.2f}" for figure in figures))
        beside = (repaired, "json-repair", floor, "json.loads of bare JSON")
        report(Figure(f"reply of four captions, {name}", "CPU us", parsed, *beside))


if __name__ == "__main__":
    main()

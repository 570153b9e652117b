"""Requests whose right answers are known, and a shard's worth of them through a session, as the loop does it."""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections import deque
from collections.abc import Sequence

from PIL import Image

from caption_assets.config import EngineConfig
from caption_assets.engines.backends import RunningEndpoints
from caption_assets.engines.base import ChatReply, ChatRequest
from caption_assets.engines.canaries import COLOURS
from caption_assets.engines.endpoint import Pace
from caption_assets.engines.fleet import FleetEngine, FleetSession
from caption_assets_tests.stubs.answers import nearest, shade_in

Rgb = tuple[int, int, int]

HASTY = Pace(
    canary_every=60, canary_timeout_s=1, backoff_s=0.1, backoff_most_s=0.5, outage_s=1, never_s=1, stall_s=0.5, lost_s=0.5,
    throttled_s=2, tick_s=0.05,
)  # fmt: skip
"""As the usual pace, for endpoints that answer within a tenth of a second."""


def fleet(urls: Sequence[str], pace: Pace = HASTY, **settings: object) -> FleetEngine:
    wanted = {"kind": "openai", "model": "stub", "endpoints": list(urls), "concurrency": 8, "request_timeout_s": 2, **settings}
    config = EngineConfig.model_validate(wanted)
    return FleetEngine(config, RunningEndpoints(config), pace)


def png(image: Image.Image) -> bytes:
    sink = io.BytesIO()
    image.save(sink, "PNG")
    return sink.getvalue()


class Shard:
    """Requests with pictures of one shade, or grids of four; `wrong` tells whose replies name another shade than their own."""

    def __init__(self, count: int, grid: bool = False, seed: int = 1) -> None:
        rng = random.Random(seed)
        self.shades: dict[str, list[Rgb]] = {}
        self.requests: dict[str, ChatRequest] = {}
        self.replies: dict[str, ChatReply] = {}
        self.asked = 0
        for number in range(count):
            name = f"request-{number}"
            self.shades[name] = [_shade(rng) for _ in range(4 if grid else 1)]
            self.requests[name] = (grid_request if grid else single_request)(name, self.shades[name])

    async def through(self, session: FleetSession, workers: int = 16) -> None:
        """Asks everything, whatever is revoked again, and settles."""
        waiting = deque(self.requests.values())

        def take_back() -> None:
            for revocation in session.revoked():
                self._again(revocation.request_ids, waiting)

        async def work() -> None:
            while waiting:
                request = waiting.popleft()
                self.asked += 1
                self.replies[request.request_id] = await session.ask(request)
                take_back()

        while True:
            await asyncio.gather(*(work() for _ in range(workers)))
            for revocation in await session.settle():
                self._again(revocation.request_ids, waiting)
            if not waiting:
                return

    def _again(self, names: Sequence[str], waiting: deque[ChatRequest]) -> None:
        for name in names:
            self.replies.pop(name, None)
            waiting.append(self.requests[name])

    @property
    def wrong(self) -> list[str]:
        return [name for name in self.requests if not self._right(name)]

    def _right(self, name: str) -> bool:
        reply = self.replies.get(name)
        if reply is None or reply.reply is None:
            return False
        try:
            texts = list(json.loads(reply.reply).values()) if len(self.shades[name]) > 1 else [reply.reply]
        except ValueError:
            return False
        found = [shade_in(text) for text in texts]
        return len(found) == len(self.shades[name]) and all(
            shade is not None and max(abs(a - b) for a, b in zip(shade, wanted, strict=True)) < 3
            for shade, wanted in zip(found, self.shades[name], strict=True)
        )


def _shade(rng: random.Random) -> Rgb:
    """Of a colour that no canary has, so that a swapped answer to a canary is never right by chance."""
    while True:
        shade = rng.randrange(256), rng.randrange(256), rng.randrange(256)
        if nearest(shade) not in COLOURS:
            return shade


def single_request(name: str, shades: Sequence[Rgb] = ((200, 30, 30),), **sampling: object) -> ChatRequest:
    picture = png(Image.new("RGB", (32, 32), shades[0]))
    return ChatRequest(name, "Describe it.", picture, "image/png", (), {"max_tokens": 50, **sampling})


def grid_request(name: str, shades: Sequence[Rgb], **sampling: object) -> ChatRequest:
    image = Image.new("RGB", (64, 64))
    for cell, shade in enumerate(shades):
        image.paste(shade, (cell % 2 * 32, cell // 2 * 32, cell % 2 * 32 + 32, cell // 2 * 32 + 32))
    keys = tuple(str(cell + 1) for cell in range(len(shades)))
    text = f"Describe every cell. Keys: {', '.join(json.dumps(key) for key in keys)}"
    return ChatRequest(name, text, png(image), "image/png", keys, {"max_tokens": 200, **sampling})


def text_request(name: str, text: str = "Say it shorter.") -> ChatRequest:
    return ChatRequest(name, text, None, None, (), {"max_tokens": 50})

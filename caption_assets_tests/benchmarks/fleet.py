"""A fleet that lies: six endpoints, of which one hangs, one throttles, one flaps, one says nothing, one swaps answers.

`python -m caption_assets_tests.benchmarks.fleet [requests]`. Rate against that of the sound endpoint alone, and what was lost,
wrong or paid twice. Liars lie from the start, and in a second round from the middle, where what they said since their last good
canary is asked again: up to 200 replies each, at any size of the shard. Wanted: 0.9 of the sound one's rate in the first, nothing
lost or wrong, the liars quarantined.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack
from typing import Any

from caption_assets.engines.endpoint import Pace
from caption_assets_tests.benchmarks import collection
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.engines.asking import Shard, fleet

QUICK = (2000,)
IN_FLIGHT = 32
LATENCY = ("--latency", "0.1", "0.4")
TROUBLES = ("hang", "throttle", "flap", "empty", "swap")


def run(urls: list[str], shard: Shard) -> tuple[float, dict[str, Any]]:
    """Seconds from the first request to the settled end, and the session's figures."""

    async def go() -> tuple[float, dict[str, Any]]:
        async with fleet(urls, Pace(), concurrency=IN_FLIGHT, request_timeout_s=60).session() as session:
            started = time.monotonic()
            await shard.through(session, IN_FLIGHT * len(urls))
            return time.monotonic() - started, session.metrics()

    return asyncio.run(go())


def one_round(name: str, count: int, lie_after: int, grid: bool, alone: float | None) -> float:
    with ExitStack() as stack:

        def start(*options: str) -> str:
            return stack.enter_context(collection.server(*LATENCY, *options))

        urls = [start()]
        if alone is not None:
            urls = [start("--behaviour", trouble, "--lie-after", str(lie_after)) for trouble in TROUBLES] + urls
        shard = Shard(count, grid)
        seconds, figures = run(urls, shard)
    rate = count / seconds
    lost = sum(request not in shard.replies for request in shard.requests)
    liars = [TROUBLES[urls.index(url)] for url in str(figures.get("quarantined", "")).split(", ") if url in urls]
    print(
        f"  {name:34} {rate:6.1f}/s {rate / (alone or rate):5.2f}   lost {lost}  wrong {len(shard.wrong) - lost}  "
        f"asked twice {shard.asked - count}  canaries {figures['canary_requests']}  quarantined: {', '.join(liars) or '-'}"
    )
    if alone is not None:
        title, way = f"fleet of six, {name}", "the sound one alone"
        least = None if lie_after else 0.9 * alone
        report(
            Figure(
                title, "replies/s", rate, floor=alone, floor_way=way, at_least=least, note=f"{shard.asked - count} asked twice"
            )
        )
        report(Figure(f"{title}: lost or wrong", "", len(shard.wrong), at_most=0))
        report(Figure(f"{title}: liars at large", "", len({"empty", "swap"} - set(liars)), at_most=0))
    return rate


def main(count: int = 3000) -> None:
    print(f"{count} requests, {IN_FLIGHT} in flight an endpoint, answers after 100 to 400 ms; rate against the sound one's")
    for form, grid in (("single pictures", False), ("grids", True)):
        alone = one_round(f"{form}, the sound one alone", count, 0, grid, None)
        one_round(f"{form}, lies from the start", count, 0, grid, alone)
        one_round(f"{form}, lies from the middle", count, count // 12, grid, alone)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

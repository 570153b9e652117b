"""A kill storm: SIGKILLs at random moments over run, step and server processes, and nothing lost, nothing twice, nothing torn.

`python -m caption_assets_tests.benchmarks.kill_storm [--pictures 20000] [--shards 20] [--kills 30] [--seed 0]`: once 1x1 and once
in 2x2 grids, with an endpoint that answers after a random 50-500 ms. Paid again at most: kills x (64 in flight + 100 unstored).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from caption_assets_tests.benchmarks import collection
from caption_assets_tests.benchmarks.reporting import Figure, report
from caption_assets_tests.stubs.answers import shade_in

QUICK = ("--pictures", 2000, "--shards", 10, "--kills", 8, "--every", 6)
CONCURRENCY, WINDOW = 64, 100


@dataclass
class Storm:
    """One storm over one collection. latency: seconds a reply takes, least and most; a kill comes after about `every` seconds,
    or sooner, at a random request of those that are left, so that all kills find something to kill."""

    root: Path
    pictures: int
    shards: int
    kills: int
    single: bool
    latency: tuple[float, float] = (0.05, 0.5)
    every: float = 20.0
    seed: int = 0
    killed: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.port = _free_port()
        self.log, self._read, self._asked = self.root / "asked.jsonl", 0, 0
        grid = {"rows": 1, "cols": 1} if self.single else {"cell_size": 32, "gap": 2, "label_font_size": 8}
        self.settings = collection.config(self.root, f"http://127.0.0.1:{self.port}/v1", grid=grid)
        (self.root / "settings.json").write_text(self.settings.model_dump_json())
        per = self.pictures // self.shards
        for number in range(self.shards):
            path = self.root / "source" / f"shard-{number:02d}.tar"
            collection.write_tar(path, collection.tiny(per, number * per), f"{number:02d}-")

    def _server(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "caption_assets_tests.stubs.openai_server", "--port", str(self.port)]
        command += ["--latency", *map(str, self.latency), "--log", str(self.log)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def _run(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "caption_assets_tests.benchmarks.shard_run", str(self.root / "settings.json")]
        steps = ["--steps"] if self.random.random() < 0.5 else []
        return subprocess.Popen([*command, *steps], stdout=subprocess.DEVNULL)

    def blow(self, patience_s: float = 3600.0) -> None:
        """Runs and kills until a run has found every shard merged. Raises when that does not come about."""
        server, run = self._server(), self._run()
        due, give_up, failures = self._moment(), time.monotonic() + patience_s, 0
        try:
            while run.poll() != 0:
                if time.monotonic() > give_up:
                    raise TimeoutError("the shards were not merged in time")
                time.sleep(0.05)
                if run.poll():
                    failures = failures + 1 if run.returncode > 0 else 0
                    if failures > 5:
                        raise RuntimeError("a run fails by itself again and again; see what it says")
                    run = self._run()
                if server.poll() is not None:
                    server = self._server()
                if sum(self.killed.values()) < self.kills and due():
                    self._kill({"run": [run.pid], "server": [server.pid], "step": self._steps()})
                    due = self._moment()
        finally:
            for pid in self._steps():
                os.kill(pid, signal.SIGKILL)
            for process in (run, server):
                process.kill()
                process.wait()

    def _moment(self) -> Callable[[], bool]:
        """When to kill next: after a random time, or at a request if that comes first: the first one of as many as there are
        kills left, drawn evenly from the requests that are left."""
        at, kills = time.monotonic() + self.random.uniform(0.1, 2 * self.every), self.kills - sum(self.killed.values())
        asked = self._so_far()
        request = asked + (self.least - asked) * (1 - self.random.random() ** (1 / max(1, kills)))
        return lambda: time.monotonic() > at or self._so_far() > request

    def _so_far(self) -> int:
        """Requests in the server's log."""
        if self.log.exists():
            with open(self.log, "rb") as file:
                file.seek(self._read)
                new = file.read()
            self._read, self._asked = self._read + len(new), self._asked + new.count(b"\n")
        return self._asked

    def _kill(self, processes: dict[str, list[int]]) -> None:
        """One of them. The step of a killed run works on without it, as it may in real life."""
        victim = self.random.choice([name for name, pids in processes.items() if pids])
        self.killed[victim] += 1
        os.kill(processes[victim][0], signal.SIGKILL)

    def _steps(self) -> list[int]:
        """Step processes of this storm."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"--step" in command and str(self.root / "settings.json").encode() in command:
                found.append(int(entry.name))
        return found

    @property
    def least(self) -> int:
        """Requests that all pictures take when nothing goes wrong."""
        return self.pictures if self.single else self.shards * -(-(self.pictures // self.shards) // 4)

    def figures(self) -> dict[str, int]:
        """What came of it, counted from the files and from the server's log."""
        ids, wrong, failed = Counter[str](), 0, 0
        for path in (self.root / "store" / "photos" / "merged").glob("*.parquet"):
            for row in pq.read_table(path, columns=["record_id", "caption"]).to_pylist():
                ids[row["record_id"]] += 1
                number = int(row["record_id"].partition("#")[2].partition("-")[2][:6]) + _first(row["record_id"], self)
                wrong += not _about(row["caption"], number)
        for path in (self.root / "store" / "photos" / "failed").glob("*.parquet"):
            failed += pq.read_metadata(path).num_rows
        asked = [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]
        real = [entry for entry in asked if not entry["canary"]]
        return {
            "kills": sum(self.killed.values()),
            **{f"of the {victim}": count for victim, count in sorted(self.killed.items())},
            "pictures": self.pictures,
            "lost": self.pictures - len(ids),
            "twice": sum(count - 1 for count in ids.values()),
            "torn": sum(_torn(path) for path in (self.root / "store").rglob("*.parquet") if not path.name.startswith(".")),
            "wrong captions": wrong,
            "failed": failed,
            "requests": len(real),
            "least requests": self.least,
            "paid again": len(real) - self.least,
            "allowed": sum(self.killed.values()) * (CONCURRENCY + WINDOW),
            "canaries": len(asked) - len(real),
        }


def _first(record_id: str, storm: Storm) -> int:
    return int(record_id[len("shard-") :][:2]) * (storm.pictures // storm.shards)


def _about(caption: str, number: int) -> bool:
    """Whether the caption names the picture's own colour (pictures are lossy)."""
    colour, shade = (number * 53 % 256, number * 101 % 256, number * 7 % 256), shade_in(caption)
    return shade is not None and all(abs(a - b) < 24 for a, b in zip(colour, shade, strict=True))


def _torn(path: Path) -> bool:
    try:
        pq.read_table(path)
        return False
    except Exception:
        return True


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def problems(figures: dict[str, int]) -> list[str]:
    """What is not as promised."""
    wanted = [name for name in ("lost", "twice", "torn", "wrong captions", "failed") if figures[name]]
    return wanted + (["paid again"] if figures["paid again"] > figures["allowed"] else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("pictures", 20_000), ("shards", 20), ("kills", 30), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between kills, about, at most")
    options = parser.parse_args()
    bad: list[str] = []
    for single in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            storm = Storm(
                Path(folder), options.pictures, options.shards, options.kills, single, every=options.every, seed=options.seed
            )
            started = time.monotonic()
            storm.blow()
            figures = storm.figures()
            print(f"{'1x1' if single else '2x2'}, {time.monotonic() - started:.0f} s")
            for name, value in figures.items():
                print(f"  {name:16}{value:8,}")
            bad += problems(figures)
            form = f"kill storm {'1x1' if single else '2x2'}, {figures['kills']} kills"
            harm = sum(figures[name] for name in ("lost", "twice", "torn", "wrong captions", "failed"))
            report(Figure(f"{form}: lost, twice, torn, wrong or failed", "", harm, at_most=0))
            report(Figure(f"{form}: paid again", "requests", figures["paid again"], at_most=figures["allowed"]))
    sys.exit(f"not as promised: {', '.join(bad)}" if bad else 0)


if __name__ == "__main__":
    main()

"""A user's project in a folder: sources, a config, and the commands run as a user runs them, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from PIL import Image, ImageDraw

COLOURS = {"red": (220, 30, 30), "green": (30, 160, 50), "blue": (40, 70, 220), "yellow": (245, 220, 40)}
TIMEOUT_S = 240


def picture(path: Path, number: int, size: tuple[int, int] = (96, 96)) -> str:
    """A file of one plain colour, told apart from others of its colour by a small mark; returns the colour's name."""
    name = list(COLOURS)[number % len(COLOURS)]
    image = Image.new("RGB", size, COLOURS[name])
    draw = ImageDraw.Draw(image)
    for bit in range(16):
        if number >> bit & 1:
            draw.point((bit * 2, 0), fill=(0, 0, 0))
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return name


@dataclass
class Project:
    """Everything below `folder`; `config` is what caption_assets.yaml says."""

    folder: Path
    config: dict[str, Any]

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def environment(self) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if key not in ("DAGSTER_HOME", "CAPTION_ASSETS_CONFIG")}
        return {**clean, "PYTHONUNBUFFERED": "1"}

    def write(self, **changes: Any) -> None:
        """Writes the config; changes replace keys of the first dataset."""
        self.config["datasets"][0].update(changes)
        (self.folder / "caption_assets.yaml").write_text(yaml.safe_dump(self.config))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "caption_assets.cli", *arguments]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def command(self, *arguments: str, code: int = 0, timeout_s: float = TIMEOUT_S) -> str:
        """Runs `caption-assets …` and returns what it printed; fails when it ends with another exit code."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=timeout_s)
        assert process.returncode == code, f"exit {process.returncode}, expected {code}:\n{output}"
        return output

    def dagster(self, *arguments: str, code: int = 0) -> str:
        """Runs plain Dagster on the same instance."""
        home = self.folder / ".dagster_home"
        home.mkdir(exist_ok=True)
        environment = {**self.environment, "DAGSTER_HOME": str(home)}
        done = subprocess.run(
            [sys.executable, "-m", "dagster", *arguments], cwd=self.folder, env=environment, text=True, capture_output=True
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, f"exit {done.returncode}, expected {code}:\n{output[-3000:]}"
        return output

    def status(self, dataset: str | None = None) -> dict[str, dict[str, Any]]:
        """shard → its entry in `status --json`."""
        found = json.loads(self.command("status", "--json"))["datasets"]
        chosen = next(d for d in found if dataset in (None, d["name"]))
        return {shard["shard"]: shard for shard in chosen["shards"]}

    def rows(self, table: str, dataset: str | None = None) -> dict[str, dict[str, Any]]:
        """record_id → row, over all shards of `merged`, `failed`, …"""
        folder = self.store / (dataset or self.config["datasets"][0]["name"]) / table
        rows = [row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
        found = {row["record_id"]: row for row in rows}
        assert len(found) == len(rows), "a record stands in more than one row"
        return found

    def files(self) -> dict[str, float]:
        """Every published file of the store and when it was written."""
        return {str(p.relative_to(self.store)): p.stat().st_mtime for p in sorted(self.store.rglob("*")) if p.is_file()}


def make_project(folder: Path, url: str, pictures: int = 8, shard_size: int = 4, **dataset: Any) -> Project:
    """A folder of plain-coloured pictures, cut into shards, asked at a running endpoint."""
    for number in range(pictures):
        picture(folder / "photos" / f"{number:04d}.png", number)
    entry = {
        "name": "photos",
        "source": "./photos/",
        "shard_size": shard_size,
        "grid": {"rows": 2, "cols": 2, "cell_size": 64, "gap": 4, "label_font_size": 12},
        "prompts": [{"text": "Describe the picture."}],
        "filters": {"min_chars": 3, "duplicate_captions": False},
        **dataset,
    }
    engine = {"kind": "openai", "model": "stub", "endpoints": [url]}
    project = Project(folder, {"store": "./store", "engine": engine, "datasets": [entry]})
    project.write()
    return project


def wait_until(true: Any, seconds: float = 60) -> None:
    """Polls; fails after so many seconds."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)

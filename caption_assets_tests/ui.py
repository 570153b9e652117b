"""`dagster dev` over a project, as a user starts it: web server, daemon and code location, on a free loopback port."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from caption_assets_tests.servers import free_port

WORKSPACE = Path(__file__).resolve().parents[1] / "workspace.yaml"
START_S = 300
"""Generous: on an idle machine it takes 10 s."""
T = TypeVar("T")

LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries {
    name loadStatus locationOrLoadError { __typename ... on PythonError { message } } } } } }"""
PARTITIONS = """query ($path: [String!]!) { assetNodeOrError(assetKey: {path: $path}) { ... on AssetNode {
    assetPartitionStatuses { ... on DefaultPartitionStatuses {
        materializedPartitions failedPartitions materializingPartitions unmaterializedPartitions } } } } }"""
BACKFILLS = (
    "{ partitionBackfillsOrError { ... on PartitionBackfills { results { id status partitionNames error { message } } } } }"
)
RUNS = "{ runsOrError { ... on Runs { results { id status jobName tags { key value } } } } }"


class UIError(Exception):
    """dagster dev did not come up, or answered with an error."""


@dataclass
class UI:
    """A running `dagster dev`. url: of the web server; log: what it prints."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        """Asks the web server; its errors are raised."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        if answer.get("errors"):
            raise UIError(str(answer["errors"])[:2000])
        return answer["data"]

    def partitions(self, dataset: str, asset: str) -> dict[str, set[str]]:
        """Keys by status: materialized, failed, materializing, unmaterialized."""
        found = self.graphql(PARTITIONS, path=[dataset, asset])["assetNodeOrError"]["assetPartitionStatuses"]
        return {name.removesuffix("Partitions"): set(keys) for name, keys in found.items()}

    def backfills(self) -> list[dict[str, Any]]:
        """id, status, partitionNames and error, the newest first."""
        return self.graphql(BACKFILLS)["partitionBackfillsOrError"]["results"]

    def runs(self) -> list[dict[str, Any]]:
        """id, status, jobName and tags (a mapping), the newest first."""
        runs = self.graphql(RUNS)["runsOrError"]["results"]
        return [{**run, "tags": {tag["key"]: tag["value"] for tag in run["tags"]}} for run in runs]

    def wait_for(self, look: Callable[[], T | None], seconds: float = 600) -> T:
        """Asks until the answer is true; ends early, with the log's end, when dagster dev has died."""
        end = time.monotonic() + seconds
        while not (found := look()):
            if self.process.poll() is not None or time.monotonic() > end:
                what = "did not happen in time" if self.process.poll() is None else f"dagster dev ended: {self.process.poll()}"
                raise UIError(f"{what}\n{self.log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.5)
        return found

    def ready(self) -> bool:
        """Whether the code location is loaded; its error is raised."""
        try:
            entries = self.graphql(LOCATIONS)["workspaceOrError"].get("locationEntries", [])
        except OSError:
            return False
        for entry in entries:
            loaded = entry["locationOrLoadError"] or {}
            if loaded.get("__typename") == "PythonError":
                raise UIError(loaded["message"])
        return bool(entries) and all(entry["loadStatus"] == "LOADED" for entry in entries)


@contextmanager
def dagster_dev(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[UI]:
    """Runs it over the config and instance in `folder` (`caption-assets init` was run there); ends it and all its children."""
    port, log = free_port(), folder / "dagster_dev.log"
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(WORKSPACE), "-h", "127.0.0.1", "-p", str(port)]
    settings = {**(environment or os.environ), "DAGSTER_HOME": str(folder / ".dagster_home"), "PYTHONUNBUFFERED": "1"}
    with open(log, "wb") as sink:
        process = subprocess.Popen(command, cwd=folder, env=settings, stdout=sink, stderr=sink, start_new_session=True)
    ui = UI(f"http://127.0.0.1:{port}", log, process)
    try:
        ui.wait_for(ui.ready, START_S)
        yield ui
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks the whole process group to end, then makes it."""
    for number, patience in ((signal.SIGINT, 30), (signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    process.wait(10)

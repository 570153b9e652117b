"""All benchmarks, one after the other, each in a process of its own.

`python -m caption_assets_tests.benchmarks [NAME …] [--full]`: the quick form takes about twenty minutes on two quiet cores, the
full one (the sizes that the targets are meant for) some hours. Figures go to docs/benchmarks.json after each benchmark, then
docs/benchmarks.md and its plots are written from there. With names only these are run, and the others keep what they said
before. A benchmark that fails or takes too long leaves the others alone.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from caption_assets_tests.benchmarks import page
from caption_assets_tests.benchmarks.reporting import RESULTS

LIMIT_S = {"quick": 300.0, "full": 7200.0}
LIBRARIES = ("dagster", "aiohttp", "duckdb", "numpy", "obstore", "openai", "orjson", "pillow", "pyarrow", "simplejpeg")


def names() -> list[str]:
    """Modules beside this one that say how they are run."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if re.search("^QUICK\\b", path.read_text(), re.M))


def arguments(name: str, form: str) -> list[str]:
    module = importlib.import_module(f"{__package__}.{name}")
    return [str(value) for value in (module.QUICK if form == "quick" else getattr(module, "FULL", ()))]


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    cpuinfo = Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else []
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    versions = {}
    for library in LIBRARIES:
        try:
            versions[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}, {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def run(name: str, form: str) -> dict[str, Any]:
    """Runs one and returns what came of it."""
    begun, load = time.monotonic(), os.getloadavg()[0]
    figures: list[dict[str, Any]] = []
    output: list[str] = []
    command = [name]
    try:
        command += arguments(name, form)
        print(f"\n=== {' '.join(command)}   (load {load:.1f})", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "figures.jsonl"
            outcome = _execute(command, results, LIMIT_S[form], output)
            if results.exists():
                figures = [json.loads(line) for line in results.read_text().splitlines()]
    except Exception as error:
        outcome = f"failed: {error}"
    if outcome != "ok":
        print(f"{name}: {outcome}", flush=True)
    return {
        "command": " ".join(command),
        "form": form,
        "outcome": outcome,
        "ended": datetime.now(timezone.utc).isoformat(timespec="minutes"),
        "seconds": round(time.monotonic() - begun, 1),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "figures": figures,
        "output": output[-60:],
    }


def _execute(command: Sequence[str], results: Path, limit_s: float, output: list[str]) -> str:
    """In a process group of its own, which is ended with it; says how it ended."""
    environment = {**os.environ, RESULTS: str(results), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.{command[0]}", *command[1:]],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            output.append(line.rstrip("\n"))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return f"stopped after {limit_s:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        listener.join(10)
    return "ok" if code == 0 else f"failed: exit {code}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*names(), []], help=f"of {', '.join(names())}")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[2] / "docs", help="the folder that is written to")
    given = parser.parse_args()
    form, file = "full" if given.full else "quick", given.docs / page.RESULTS
    given.docs.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the benchmark at work is ended, too
    for name in given.names or names():
        done = run(name, form)
        known = json.loads(file.read_text())["benchmarks"] if file.exists() else {}
        known = {other: entry for other, entry in known.items() if other in names()} | {name: done}
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps({"machine": machine(), "benchmarks": dict(sorted(known.items()))}, indent=1) + "\n")
        os.replace(draft, file)
    page.write(given.docs)
    entries = json.loads(file.read_text())["benchmarks"].values()
    failed = sum(entry["outcome"] != "ok" for entry in entries)
    missed = sum(figure["met"] is False for entry in entries for figure in entry["figures"])
    print(f"\n{given.docs / page.PAGE}: {failed} benchmarks failed, {missed} targets missed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

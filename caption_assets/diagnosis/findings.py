"""What a probe finds, said without secrets, and probes that run side by side within a time limit."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from caption_assets.core.hiding import hidden

State = Literal["ok", "warning", "problem"]

_SECRET_NAME = re.compile(r"SECRET|TOKEN|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|CREDENTIAL")
_SHORTEST_SECRET = 6


@dataclass(frozen=True)
class Finding:
    """check: what was looked at; of: which dataset, engine or path; remedy: one sentence, empty where nothing is to be done."""

    state: State
    check: str
    of: str
    said: str
    remedy: str = ""


@dataclass(frozen=True)
class Probe:
    """One look. run: its findings, as they come; it may raise. remedy: where it gives no answer in time."""

    check: str
    of: str
    run: Callable[[], Iterable[Finding]]
    remedy: str


def run_probes(probes: Sequence[Probe], limit_s: float, secret_names: Sequence[str] = ()) -> tuple[list[Finding], bool]:
    """The findings of all probes, in their order, and whether one of them is still at it after `limit_s`: its thread is left
    behind. secret_names: environment variables whose values are secrets, besides those whose names say so."""
    runs = [_Run(probe) for probe in probes]
    deadline, findings, stuck = time.monotonic() + limit_s, [], False
    for run in runs:
        run.thread.join(max(0.0, deadline - time.monotonic()))
        findings += list(run.findings)
        if run.thread.is_alive():
            stuck = True
            probe = run.probe
            findings.append(Finding("problem", probe.check, probe.of, f"no answer within {limit_s:g} s", probe.remedy))
    return [
        replace(f, of=redacted(f.of), said=redacted(f.said, secret_names), remedy=redacted(f.remedy)) for f in findings
    ], stuck


class _Run:
    """A probe in a thread of its own, which does not keep the process alive."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.findings: list[Finding] = []
        self.thread = threading.Thread(target=self._run, daemon=True, name=f"doctor-{probe.check}")
        self.thread.start()

    def _run(self) -> None:
        try:
            for finding in self.probe.run():
                self.findings.append(finding)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            self.findings.append(Finding("problem", self.probe.check, self.probe.of, said, self.probe.remedy))


def redacted(text: str, secret_names: Sequence[str] = ()) -> str:
    """The text as `hidden` shows it, and without what environment variables hold that are named here, or whose names say that
    it is a secret."""
    return hidden(text, *_secrets(secret_names))


def _secrets(names: Sequence[str]) -> list[str]:
    """Values of environment variables that are secrets, the longest first."""
    found = {value for name, value in os.environ.items() if name in names or _SECRET_NAME.search(name.upper())}
    return sorted((value for value in found if len(value) >= _SHORTEST_SECRET), key=len, reverse=True)


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"

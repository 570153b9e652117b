"""Why vLLM did not start, for people: one sentence that names what to change, then the end of its log."""

from __future__ import annotations

import re
from pathlib import Path

_CAUSES = (
    (r"unrecognized arguments: (.*)", "engine.server_args: vLLM does not know {0}"),
    (r"error: argument (--[\w-]+).*", "engine.server_args: {all}"),
    (r"No module named '?vllm\b", "vLLM is not installed here: see docs/install.md"),
    (
        r"CUDA out of memory|OutOfMemoryError|No available memory for the cache|less than desired GPU memory|MemoryError|"
        r"Cannot allocate memory|larger than the available KV cache|tokens that can be stored in KV cache",
        "not enough memory: lower max_model_len or gpu_memory_utilization in engine.server_args, or stop what else runs "
        "(caption-assets engine stop)",
    ),
    (r"address already in use", "every port that was tried was taken"),
    (
        r"gated repo|GatedRepo|401 Client Error|Access to model .* is restricted",
        "engine.model: the hub wants a login for {model}: set HF_TOKEN",
    ),
    (r"RevisionNotFoundError|Revision Not Found|not a valid git identifier", "engine.revision: {model} has no such revision"),
    (
        r"Repository Not Found|RepositoryNotFoundError|is not a valid model identifier|Repo id must",
        "engine.model: the hub has no model {model}, and there is no such folder",
    ),
    (
        r"LocalEntryNotFoundError|couldn't connect to|OfflineModeIsEnabled|Cannot reach|ConnectionError|Failed to resolve",
        "engine.model: {model} is not in the local cache, and the hub cannot be reached",
    ),
    (
        r"does not (?:appear to )?have a file named|Unrecognized model in|[Ii]nvalid repository ID or local directory",
        "engine.model: {model} is no model that vLLM can load",
    ),
    (
        r"custom code which must be executed|pass the argument `?trust_remote_code=True|set `?trust_remote_code=True",
        "the model brings code of its own: set engine.trust_remote_code where you trust it",
    ),
    (
        r"are not supported for now|has no vLLM implementation|is not supported by vLLM",
        "engine.model: vLLM does not support the architecture of {model}",
    ),
)


def explain(model: str, log: Path, lines: list[str], why: str | None, exit_code: int | None) -> str:
    """Of a vLLM that ended before it did what it was started for. lines: its log; why: what its supervisor says."""
    tail = "\n".join(f"  {line}" for line in lines[-15:]) or "  (empty)"
    return f"vLLM with {model} did not start: {_cause(model, lines, why, exit_code)}\nIts log, {log}, ends:\n{tail}"


def _cause(model: str, lines: list[str], why: str | None, exit_code: int | None) -> str:
    text = "\n".join(lines)
    for pattern, sentence in _CAUSES:
        if found := re.search(pattern, text):
            return sentence.format(*(found.groups() or ("",)), all=found[0], model=model)
    if why:
        return why
    if exit_code in (-9, 137):
        return "it was killed, perhaps because memory ran out"
    errors = [line for line in lines if re.search(r"\b\w*(Error|Exception): ", line)]
    return errors[-1].strip()[-300:] if errors else f"it ended with exit code {exit_code}"

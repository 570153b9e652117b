"""Why vLLM did not start, for people: one sentence that names what to change, then the end of its log."""

from __future__ import annotations

import re

from caption_assets.engines.serverstate import ServerFolder, ServerInfo, ServerSpec

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


def explain(folder: ServerFolder, info: ServerInfo | None, spec: ServerSpec) -> str:
    """Of a server that ended before it was ready."""
    lines = folder.log_tail(400)
    tail = "\n".join(f"  {line}" for line in lines[-15:]) or "  (empty)"
    return f"vLLM with {spec.model} did not start: {_cause(lines, info, spec)}\nIts log, {folder.log}, ends:\n{tail}"


def _cause(lines: list[str], info: ServerInfo | None, spec: ServerSpec) -> str:
    text = "\n".join(lines)
    for pattern, sentence in _CAUSES:
        if found := re.search(pattern, text):
            return sentence.format(*(found.groups() or ("",)), all=found[0], model=spec.model)
    if info is None:
        return f"its supervisor ended at once: see {ServerFolder.of(spec.identity).path / 'supervisor.log'}"
    if info.why:
        return info.why
    if info.exit_code == -9:
        return "it was killed, perhaps because memory ran out"
    errors = [line for line in lines if re.search(r"\b\w*(Error|Exception): ", line)]
    return errors[-1].strip()[-300:] if errors else f"it ended with exit code {info.exit_code}"

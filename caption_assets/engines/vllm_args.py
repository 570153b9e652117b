"""How vLLM is started for a configuration: its model, flags, environment and GPUs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from caption_assets.config import EngineConfig
from caption_assets.engines.base import WrongSettings
from caption_assets.engines.modelfolder import model_folder
from caption_assets.engines.revision import folder_revision
from caption_assets.engines.serverstate import ServerSpec

SMALL_MODEL_BYTES = 200 << 20


def gpus() -> list[str]:
    """The NVIDIA GPUs this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    return [line.strip() for line in ask_nvidia("index", timeout_s=30) if line.strip().isdigit()]


def ask_nvidia(fields: str, timeout_s: float) -> list[str]:
    """nvidia-smi's line for each GPU, with these fields; none where there is no nvidia-smi, or it fails."""
    if not (tool := shutil.which("nvidia-smi")):
        return []
    command = [tool, f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=True).stdout.splitlines()  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return []


def gpu_groups(config: EngineConfig) -> list[list[str]]:
    """The GPUs of each server; an empty group is a server without any. Raises EngineDown where they do not suffice."""
    names = gpus()
    if not names:
        return [[] for _ in range(1 if config.replicas == "auto" else config.replicas)]
    args = {_flag(name): value for name, value in config.server_args.items()}
    each = int(args.get("tensor-parallel-size", 1)) * int(args.get("pipeline-parallel-size", 1))
    count = max(1, len(names) // each) if config.replicas == "auto" else config.replicas
    if count * each > len(names):
        raise WrongSettings(f"engine: {count} servers of {each} GPUs want {count * each}, this machine shows {len(names)}")
    return [names[n * each : (n + 1) * each] for n in range(count)]


def arguments(config: EngineConfig, folder: Path | None, with_gpu: bool) -> list[str]:
    """vLLM's arguments but for host and port, for the server as for run_batch; engine.server_args win over our defaults."""
    defaults: dict[str, Any] = {"limit-mm-per-prompt": {"image": 1}}
    if not with_gpu:
        defaults |= {"dtype": "float32", "enforce-eager": True}
    flags = {**defaults, **{_flag(name): value for name, value in config.server_args.items()}}
    args = ["--model", str(folder or config.model), "--served-model-name", config.model]
    if config.revision and folder is None:
        args += ["--revision", config.revision]
    if config.trust_remote_code:
        args.append("--trust-remote-code")
    return args + [word for name, value in flags.items() for word in _words(name, value)]


def _flag(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


def _words(name: str, value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, Mapping):
        return [f"--{name}", json.dumps(value)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [f"--{name}", *map(str, value)]
    return [f"--{name}", str(value)]


def environment(folder: Path | None, group: Sequence[str]) -> dict[str, str]:
    """What is added to the user's environment; what stands there already, wins."""
    added = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if folder is not None:
        added["HF_HUB_OFFLINE"] = "1"
    if not group:
        added["VLLM_CPU_KVCACHE_SPACE"] = str(_cpu_cache_gb(folder))
    added = {name: os.environ.get(name, value) for name, value in added.items()}
    return added | ({"CUDA_VISIBLE_DEVICES": ",".join(group)} if group else {})


def _cpu_cache_gb(folder: Path | None) -> int:
    """GB of KV cache without a GPU: an eighth of the memory, 1 for a small model."""
    if folder is not None and sum(file.stat().st_size for file in folder.iterdir() if file.is_file()) < SMALL_MODEL_BYTES:
        return 1
    return max(1, min(16, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 33))


def server_specs(config: EngineConfig) -> list[ServerSpec]:
    """The servers of a configuration, one per replica. Same identity: same server, whoever asks. Raises EngineDown."""
    folder = model_folder(config.model)
    specs = []
    for number, group in enumerate(gpu_groups(config)):
        argv = (
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--disable-uvicorn-access-log",
            *arguments(config, folder, bool(group)),
        )  # fmt: skip
        added = environment(folder, group)
        parts = [argv, {**_settings(), **added}, folder_revision(folder) if folder else None, number]
        identity = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        specs.append(ServerSpec(identity, config.model, argv, added))
    return specs


def _settings() -> dict[str, str]:
    """What the user's environment tells vLLM; secrets do not make another server."""
    names = [name for name in os.environ if name.startswith(("VLLM_", "HF_", "CUDA_"))]
    return {name: os.environ[name] for name in names if not name.endswith(("_KEY", "_TOKEN"))}

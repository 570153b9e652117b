"""What this machine has to offer: GPUs, optional libraries, a free port for the web server."""

from __future__ import annotations

import importlib.util
import json
import socket
import urllib.request
from collections.abc import Iterator, Mapping

from caption_assets.config import Config
from caption_assets.core.sources.names import extension
from caption_assets.diagnosis.findings import Finding
from caption_assets.diagnosis.glimpse import Glimpse
from caption_assets.engines.modelfolder import is_path, model_folder
from caption_assets.engines.vllm_args import ask_nvidia

HEIC, JXL = ("heic", "heif", "hif"), ("jxl",)


def gpu_lines() -> list[str]:
    """One line per NVIDIA GPU, used ones of other programs included; empty where there is no nvidia-smi, or it fails."""
    lines = ask_nvidia("index,name,memory.total,memory.used", timeout_s=15)
    rows = [[part.strip() for part in line.split(",")] for line in lines if line.count(",") == 3]
    return [f"GPU {index}: {name}, {total}, {used} used" for index, name, total, used in rows]


def libraries(config: Config, seen: Mapping[str, Glimpse]) -> Iterator[Finding]:
    """Optional libraries that this config, or the files seen, want."""
    for module, extra, why in sorted(set(_wanted(config, seen))):
        if importlib.util.find_spec(module):
            yield Finding("ok", "library", module, f"installed, for {why}")
        else:
            yield Finding("problem", "library", module, f"missing, for {why}", f"pip install 'caption-assets[{extra}]'")


def _wanted(config: Config, seen: Mapping[str, Glimpse]) -> Iterator[tuple[str, str, str]]:
    """(module, extra, why)."""
    for spec in config.datasets:
        endings = {extension(name) for name in seen[spec.name].names} if spec.name in seen else set()
        if endings.intersection(HEIC):
            yield "pillow_heif", "heic", f"the HEIC pictures of {spec.name}"
        if endings.intersection(JXL):
            yield "pillow_jxl", "jxl", f"the JPEG XL pictures of {spec.name}"
        if any(spec.filters_of(prompt).language for prompt in spec.prompts):
            yield "py3langid", "language", f"the language filter of {spec.name}"
        if "lance" in spec.exports:
            yield "lance", "lance", f"the export lance of {spec.name}"
        if any(source.startswith("hf://") for source in spec.source):
            yield "huggingface_hub", "hf", f"the source of {spec.name}"
        engine = config.engine_of(spec)
        if engine.kind != "openai" and not engine.endpoints and not _in_a_folder(engine.model):
            yield "huggingface_hub", "hf", f"the model {engine.model}"


def _in_a_folder(model: str) -> bool:
    """Whether the model is no hub name, be the folder there or not."""
    return is_path(model) or model_folder(model) is not None


def port(number: int) -> Iterator[Finding]:
    """Whether Dagster's web server can have its port."""
    of = f"127.0.0.1:{number}"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError as error:
            if _is_dagster(of):
                yield Finding("ok", "port", of, "a Dagster web server is there")
            else:
                remedy = f"dagster dev -p {number + 1}, or stop what listens there"
                yield Finding("warning", "port", of, f"not free for Dagster's web server: {error.strerror}", remedy)
            return
    yield Finding("ok", "port", of, "free for Dagster's web server")


def _is_dagster(address: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}/server_info", timeout=5) as answer:
            return "dagster_version" in json.loads(answer.read(1 << 16))
    except (OSError, ValueError):
        return False

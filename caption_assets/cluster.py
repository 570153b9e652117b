"""Resources asked of a cluster per asset, in the tags that Ray's and Kubernetes' run launchers read."""

from __future__ import annotations

import json
from typing import Any

from caption_assets.config import EngineConfig, ResourcesConfig


def gpus_of(engine: EngineConfig | None) -> float:
    """GPUs of servers that the step starts itself; endpoints that run elsewhere need none here."""
    if engine is None or engine.kind == "openai" or engine.model == "demo":
        return 0
    replicas = engine.replicas if isinstance(engine.replicas, int) else 1
    return float(int(engine.server_args.get("tensor_parallel_size", 1)) * replicas)


def largest(asked: list[ResourcesConfig]) -> ResourcesConfig | None:
    """What a run needs whose steps share one process."""
    if not asked:
        return None
    memory = [r.memory_gb for r in asked if r.memory_gb is not None]
    gpus = [r.gpus for r in asked if r.gpus is not None]
    return ResourcesConfig(cpus=max(r.cpus for r in asked), memory_gb=max(memory, default=None), gpus=max(gpus, default=None))


def resource_tags(asked: ResourcesConfig | None, engine: EngineConfig | None = None) -> dict[str, Any]:
    """`dagster-ray/…` and `dagster-k8s/config` tags; empty where the config asks for nothing."""
    if asked is None:
        return {}
    gpus = asked.gpus if asked.gpus is not None else gpus_of(engine)
    requests: dict[str, Any] = {"cpu": f"{asked.cpus:g}"}
    limits: dict[str, Any] = {}
    ray: dict[str, str] = {"dagster-ray/num_cpus": f"{asked.cpus:g}"}
    if asked.memory_gb is not None:
        requests["memory"] = limits["memory"] = f"{asked.memory_gb:g}Gi"
        ray["dagster-ray/memory"] = str(int(asked.memory_gb * 2**30))
    if gpus:
        ray["dagster-ray/num_gpus"] = f"{gpus:g}"
        limits["nvidia.com/gpu"] = f"{gpus:g}"
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    return {**ray, "dagster-k8s/config": json.dumps({"container_config": {"resources": resources}})}

"""Resources asked of a cluster per asset, in the tags that Ray's and Kubernetes' run launchers read."""

from __future__ import annotations

import json
import math
from typing import Any

from caption_assets.config import EngineConfig, ResourcesConfig

RAY_TAG, K8S_TAG = "dagster-ray/config", "dagster-k8s/config"
GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
"""GPU nodes of a Kubernetes cluster are commonly tainted so that only what needs a GPU comes there."""


def gpus_of(engine: EngineConfig | None) -> float:
    """GPUs of servers that the step starts itself; endpoints that run elsewhere need none here. With `replicas: auto` those of
    one server: a run sees no more than it is given."""
    if engine is None or engine.kind == "openai" or engine.endpoints or engine.model == "demo":
        return 0
    args = {name.lstrip("-").replace("-", "_"): value for name, value in engine.server_args.items()}
    each = int(args.get("tensor_parallel_size", 1)) * int(args.get("pipeline_parallel_size", 1))
    return float(each * (engine.replicas if isinstance(engine.replicas, int) else 1))


def largest(asked: list[ResourcesConfig]) -> ResourcesConfig | None:
    """What a run needs whose steps share one process."""
    if not asked:
        return None
    memory = [r.memory_gb for r in asked if r.memory_gb is not None]
    gpus = [r.gpus for r in asked if r.gpus is not None]
    return ResourcesConfig(cpus=max(r.cpus for r in asked), memory_gb=max(memory, default=None), gpus=max(gpus, default=None))


def resource_tags(asked: ResourcesConfig | None, engine: EngineConfig | None = None) -> dict[str, Any]:
    """The tags of both; empty where the config asks for nothing."""
    if asked is None:
        return {}
    gpus = asked.gpus if asked.gpus is not None else gpus_of(engine)
    requests: dict[str, Any] = {"cpu": f"{asked.cpus:g}"}
    limits: dict[str, Any] = {}
    ray: dict[str, float] = {"num_cpus": asked.cpus}
    if asked.memory_gb is not None:
        requests["memory"] = limits["memory"] = f"{asked.memory_gb:g}Gi"
        ray["memory"] = int(asked.memory_gb * 2**30)
    if gpus:
        ray["num_gpus"] = gpus
        limits["nvidia.com/gpu"] = str(math.ceil(gpus))  # Kubernetes gives whole ones only
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    k8s: dict[str, Any] = {"container_config": {"resources": resources}}
    if gpus:
        k8s["pod_spec_config"] = {"tolerations": [GPU_TOLERATION]}
    return {RAY_TAG: json.dumps(ray), K8S_TAG: json.dumps(k8s)}

"""From the configuration to vLLM's command line, environment and GPUs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from caption_assets.config import EngineConfig
from caption_assets.engines.base import EngineDown
from caption_assets.engines.modelfolder import DEMO_FOLDER, model_folder
from caption_assets.engines.serverstate import STATE_ENV
from caption_assets.engines.vllm_args import arguments, environment, gpu_groups, server_specs


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    monkeypatch.setenv(STATE_ENV, str(tmp_path / "state"))
    for name in [n for n in os.environ if n.startswith(("VLLM_", "HF_", "CUDA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def config(model: str = "demo", **settings: object) -> EngineConfig:
    return EngineConfig.model_validate({"kind": "vllm", "model": model, **settings})


def flags(*words: str) -> dict[str, str]:
    """As `--name value`, a flag without a value being ""."""
    found: dict[str, str] = {}
    for word, following in zip(words, (*words[1:], "--"), strict=True):
        if word.startswith("--"):
            found[word] = "" if following.startswith("--") else following
    return found


def test_the_demo_is_served_from_the_package_without_a_network():
    (spec,) = server_specs(config())
    said = flags(*spec.argv)
    assert said["--model"] == str(DEMO_FOLDER) and said["--served-model-name"] == "demo" and said["--host"] == "127.0.0.1"
    assert (
        said["--dtype"] == "float32" and "--enforce-eager" in said and json.loads(said["--limit-mm-per-prompt"]) == {"image": 1}
    )
    assert spec.environment["HF_HUB_OFFLINE"] == "1" and spec.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert "--api-key" not in said and "--port" not in said


def test_a_hub_model_keeps_its_revision_and_its_network():
    said = flags(*arguments(config("org/model", revision="abc", trust_remote_code=True), None, True))
    assert said["--model"] == "org/model" and said["--revision"] == "abc" and "--trust-remote-code" in said
    assert "--dtype" not in said and "--enforce-eager" not in said
    assert "HF_HUB_OFFLINE" not in environment(None, ["0"])


def test_server_args_become_flags_and_win():
    args: dict[str, object] = {"dtype": "bfloat16", "enforce_eager": False, "max_model_len": 4096, "quantization": None}
    args |= {"limit_mm_per_prompt": {"image": 2}, "enable-prefix-caching": True, "middleware": ["a", "b"]}
    words = arguments(config(server_args=args), DEMO_FOLDER, False)
    said = flags(*words)
    assert said["--dtype"] == "bfloat16" and "--enforce-eager" not in said and "--no-enforce-eager" in said
    assert said["--max-model-len"] == "4096" and json.loads(said["--limit-mm-per-prompt"]) == {"image": 2}
    assert "--enable-prefix-caching" in said and words[words.index("--middleware") + 1 :][:2] == ["a", "b"]
    assert "--quantization" not in said


def test_what_the_user_set_in_the_environment_wins(monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "7")
    assert environment(DEMO_FOLDER, [])["VLLM_CPU_KVCACHE_SPACE"] == "7"


@pytest.mark.parametrize(
    ("settings", "groups"),
    [
        ({}, [["0"], ["1"], ["2"], ["5"]]),
        ({"server_args": {"tensor_parallel_size": 2}}, [["0", "1"], ["2", "5"]]),
        ({"server_args": {"tensor-parallel-size": 3}}, [["0", "1", "2"]]),
        ({"replicas": 2}, [["0"], ["1"]]),
    ],
)
def test_gpus_are_shared_out_among_replicas(monkeypatch, settings, groups):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,5")
    assert gpu_groups(config(**settings)) == groups
    assert [spec.environment["CUDA_VISIBLE_DEVICES"] for spec in server_specs(config(**settings))] == [
        ",".join(g) for g in groups
    ]


def test_too_few_gpus_are_said(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(EngineDown, match="2 servers of 2 GPUs want 4, this machine shows 2"):
        gpu_groups(config(replicas=2, server_args={"tensor_parallel_size": 2}))


def test_identity_is_model_arguments_environment_and_content(tmp_path, monkeypatch):
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(b"1")

    def identity(**settings: object) -> str:
        return server_specs(config(str(model), **settings))[0].identity

    first = identity()
    same = [identity(), identity(concurrency=3), identity(idle_stop_s=3), identity(request_timeout_s=3)]
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert {first, identity(), *same} == {first}
    others = [identity(server_args={"max_model_len": 77}), identity(trust_remote_code=True)]
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "3")
    others.append(identity())
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE")
    (model / "weights").write_bytes(b"2")
    others.append(identity())
    assert len({first, *others}) == 5


def test_replicas_of_one_model_are_different_servers():
    assert len({spec.identity for spec in server_specs(config(replicas=3))}) == 3


def test_a_model_is_a_folder_a_name_or_a_mistake(tmp_path):
    assert model_folder("demo") == DEMO_FOLDER and model_folder(str(tmp_path)) == tmp_path and model_folder("org/name") is None
    with pytest.raises(EngineDown, match="there is no folder"):
        model_folder(str(Path(tmp_path, "gone")))

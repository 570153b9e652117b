"""The images and the compose file: linters accept them, and what they name exists."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from compose_spec import ComposeSpecification

from caption_assets.configfile import load_config

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy" / "docker"
IMAGES = ("Dockerfile.cpu", "Dockerfile.gpu")
SECRETS = {"POSTGRES_PASSWORD": "pw", "VLLM_API_KEY": "key"}


def tool(name, *arguments):
    program = Path(sys.executable).parent / name
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, env={**os.environ, **SECRETS})
    assert done.returncode == 0, done.stdout + done.stderr


def interpolated(value, environment):
    """Compose's `${NAME:-default}` and `${NAME:?message}`."""
    if isinstance(value, dict):
        return {key: interpolated(entry, environment) for key, entry in value.items()}
    if isinstance(value, list):
        return [interpolated(entry, environment) for entry in value]
    if not isinstance(value, str):
        return value

    def replace(match):
        if match[1] not in environment:
            assert match[2] == "-", f"{match[1]} is not set"
            return match[3]
        return environment[match[1]]

    return re.sub(r"\$\{(\w+):([-?])([^}]*)\}", replace, value)


@pytest.fixture(scope="module")
def compose():
    return interpolated(yaml.safe_load((DOCKER / "compose.yaml").read_text()), SECRETS)


@pytest.mark.parametrize("image", IMAGES)
def test_hadolint_accepts(image):
    tool("hadolint", str(DOCKER / image))


def test_compose_lint_and_the_schema_accept(compose):
    tool("compose-lint", "check", str(DOCKER / "compose.yaml"))
    assert ComposeSpecification.model_validate(compose).services.keys() == compose["services"].keys()


@pytest.mark.parametrize("image", IMAGES)
def test_images_are_built_of_what_the_context_has(image):
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    text = (DOCKER / image).read_text()
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        for source in line.split():
            assert (ROOT / source).exists() and source.split("/")[0] in kept
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE) == ["10001:10001"]
    for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
        assert re.search(r":\d+\.\d+\.\d+-", base), f"{base}: not a pinned tag"


def test_nothing_is_shown_beyond_this_machine_and_no_secret_is_written_down(compose):
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 2 and all(port.startswith("127.0.0.1:") for port in ports)
    text = (DOCKER / "compose.yaml").read_text()
    for name, value in re.findall(r"^\s+(\w*(?:PASSWORD|KEY|TOKEN|ID))\s*:(.*)$", text, re.MULTILINE):
        assert not value.strip() or "${" in value, f"{name} has a value in the file"
    assert not re.search(r"^[A-Z_]*(PASSWORD|KEY|TOKEN)=\S", (DOCKER / ".env.example").read_text(), re.MULTILINE)


def test_a_gpu_is_asked_for_in_the_profile_gpu_only(compose):
    services = compose["services"]
    with_gpu = {name for name, service in services.items() if "nvidia" in str(service.get("deploy"))}
    assert with_gpu == {name for name, service in services.items() if "gpu" in service.get("profiles", [])} == {"vllm"}
    shared = {name for name, service in services.items() if "models" in service["networks"]}
    assert shared == {"vllm", "daemon"}, "only runs reach vLLM, and the daemon executes them"


def test_the_config_is_one_and_fits_the_compose_file(compose, tmp_path, monkeypatch):
    environment = compose["services"]["daemon"]["environment"]
    for name, value in environment.items():
        if value:
            monkeypatch.setenv(name, value)
    shutil.copy(DOCKER / "caption_assets.yaml", tmp_path)
    config = load_config(tmp_path / "caption_assets.yaml")
    mounted = [volume.split(":")[1] for volume in compose["services"]["daemon"]["volumes"]]
    assert config.store in mounted and config.datasets[0].source[0].rstrip("/") in mounted
    assert config.engine.endpoints == ["http://vllm:8000/v1"]
    assert environment[config.engine.api_key_env] == compose["services"]["vllm"]["environment"]["VLLM_API_KEY"]
    assert config.engine.model in compose["services"]["vllm"]["command"]

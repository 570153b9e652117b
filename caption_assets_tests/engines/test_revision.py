"""Which exact model answers."""

from __future__ import annotations

import json
import os

import pytest

from caption_assets.config import EngineConfig
from caption_assets.engines.base import EngineDown
from caption_assets.engines.revision import folder_revision, resolve_revision
from caption_assets.engines.serverstate import STATE_ENV


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv(STATE_ENV, str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "sub" / "weights").write_bytes(b"1234")
    return folder


def config(model: object, **settings: object) -> EngineConfig:
    return EngineConfig.model_validate({"kind": "vllm", "model": str(model), **settings})


def test_a_folder_is_known_by_its_files(model):
    first = resolve_revision(config(model))
    assert first == resolve_revision(config(model)) and first.startswith("sha256-")
    (model / "sub" / "weights").write_bytes(b"1235")
    second = resolve_revision(config(model))
    (model / "sub" / "weights").rename(model / "sub" / "weights2")
    assert len({first, second, resolve_revision(config(model))}) == 3


def test_where_it_lies_and_when_it_was_written_do_not_matter(model, tmp_path):
    first = folder_revision(model)
    os.utime(model / "config.json", (1, 1))
    assert folder_revision(model) == first
    assert folder_revision(model.rename(tmp_path / "elsewhere")) == first


def test_files_that_did_not_change_are_not_read_again(model, state):
    first = folder_revision(model)
    cache = json.loads((state / "revisions.json").read_text())
    cache[str(model)]["config.json"][1] = "another hash"
    (state / "revisions.json").write_text(json.dumps(cache))
    assert folder_revision(model) != first


def test_a_broken_cache_costs_nothing(model, state):
    first = folder_revision(model)
    (state / "revisions.json").write_text('{"cut')
    assert folder_revision(model) == first


def test_a_state_folder_that_cannot_be_written_costs_nothing(model, state):
    state.write_text("a file where the folder would be")
    assert folder_revision(model) == folder_revision(model)


def test_hidden_files_are_not_the_model(model):
    first = folder_revision(model)
    (model / ".cache").mkdir()
    (model / ".cache" / "x").write_text("x")
    assert folder_revision(model) == first


def test_an_empty_folder_is_no_model(tmp_path):
    with pytest.raises(EngineDown, match="has no files"):
        folder_revision(tmp_path)


def test_endpoints_that_run_already_have_the_revision_that_is_written():
    endpoint = {"kind": "openai", "endpoints": ["http://127.0.0.1:1/v1"]}
    assert resolve_revision(config("m", **endpoint)) is None
    assert resolve_revision(config("m", **endpoint, revision="r")) == "r"
    assert resolve_revision(config("m", kind="batch", endpoints=["http://127.0.0.1:1/v1"], revision="r")) == "r"


def test_a_commit_is_itself():
    assert resolve_revision(config("org/name", revision="a" * 40)) == "a" * 40


def test_without_a_network_a_hub_name_is_what_the_cache_has(tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(EngineDown, match="HF_HUB_OFFLINE is set"):
        resolve_revision(config("org/name"))
    refs = tmp_path / "models--org--name" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("b" * 40)
    assert resolve_revision(config("org/name")) == "b" * 40

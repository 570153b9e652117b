"""The demo model in the package is small and whole; that it tells the truth is shown through vLLM by demo.evaluate."""

import json
import struct

import pytest

from caption_assets.configfile import load_config
from caption_assets.core.prompts import grid_text
from caption_assets.demo import MODEL
from caption_assets.demo.collection import CONFIG


def test_the_folder_is_under_10_mb_and_has_what_vllm_loads():
    names = {path.name for path in MODEL.iterdir()}
    assert {"config.json", "generation_config.json", "processor_config.json", "tokenizer.json", "tokenizer_config.json"} <= names
    assert {"chat_template.jinja", "model.safetensors"} <= names
    assert sum(path.stat().st_size for path in MODEL.iterdir()) < 10_000_000


def test_it_has_under_a_million_parameters():
    with open(MODEL / "model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    header.pop("__metadata__", None)
    sizes = []
    for tensor in header.values():
        size = 1
        for side in tensor["shape"]:
            size *= side
        sizes.append(size)
    assert 500_000 < sum(sizes) < 1_000_000


def test_the_demo_requests_fit_its_context(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    (tmp_path / "caption_assets.yaml").write_text(CONFIG)
    config = load_config(tmp_path / "caption_assets.yaml")
    for dataset in config.datasets:
        cells = dataset.grid.rows * dataset.grid.cols
        for prompt in dataset.prompts:
            texts = [prompt.text.format(record=Named(name=f"IMG_{n:04d}.webp"), output=Named(caption="a")) for n in range(cells)]
            tokens = len(tokenizer.encode(grid_text(range(1, cells + 1), texts)).ids) + 16 + cells * dataset.sampling.max_tokens
            assert tokens < config.engine.server_args["max_model_len"] / 2


class Named:
    def __init__(self, **values):
        self.__dict__.update(values)

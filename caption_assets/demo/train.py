"""Trains the demo model: an Idefics3 of 838,176 parameters, on a CPU.

    python -m caption_assets.demo.train OUT --minutes 30                      goes on from the model in the package
    python -m caption_assets.demo.train OUT --minutes 30 --init OUT/state.pt  goes on from a run's fp32 state
    python -m caption_assets.demo.train OUT --minutes 60 --fresh              from random weights

OUT becomes a folder as vLLM loads it (bf16) plus state.pt (fp32, for going on; not part of the package). Architecture, tokenizer
and chat template are always those of the packaged folder. The bf16 weights are good enough to go on from:
only the rounding and the auxiliary head are lost, and their answers are right from the first step.

Plain training never learns shapes in a model this small. What made it work: patch filters that begin as a DCT and positions that
begin as sines (`_good_beginning`), and an auxiliary loss by which every patch names its cell's shape, colour and background and
draws its own foreground (`PatchLoss`); from random weights the first third of the time is this loss alone. The learning rate
follows the clock, so a run is not bit-identical to the next.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from transformers import AutoProcessor, Idefics3Config, Idefics3ForConditionalGeneration

from caption_assets.demo import MODEL
from caption_assets.demo.shapes import BACKGROUNDS, COLOURS, SHAPES
from caption_assets.demo.training_data import MASK, PATCHES, Example, Examples, Kind

PATCH_LOSS_SHARE = 0.15
ALONE = 1 / 3
"""From random weights: the share of the time that belongs to the patch loss alone."""


@dataclass(frozen=True)
class Batch:
    """ids, targets: int64[n, tokens], right-padded; targets are -100 outside the answer. pictures: pixels, labels and mask of all
    examples, None for text alone."""

    ids: torch.Tensor
    targets: torch.Tensor
    pictures: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None


class Requests:
    """Token ids as vLLM makes them from the chat template: text first, then the picture's 16 tokens."""

    def __init__(self, processor: Any, rng: random.Random) -> None:
        self._tokenizer, self._rng = processor.tokenizer, rng
        self.image = self._id("<image>")
        self.end = self._id("<end_of_utterance>")
        fence = self._id("<fake_token_around_image>")
        self._picture = [fence, self._id("<global-img>"), *[self.image] * processor.image_seq_len, fence]
        self._begin, self._user, self._answer = self._id("<s>"), self._id("<|user|>"), self._id("<|assistant|>")
        self._pad = self._id("<pad>")

    def batch(self, examples: Sequence[Example]) -> Batch:
        rows = [self._row(example) for example in examples]
        longest = max(len(asked) + len(said) for asked, said in rows)
        ids = torch.full((len(rows), longest), self._pad)
        targets = torch.full((len(rows), longest), -100)
        for index, (asked, said) in enumerate(rows):
            ids[index, : len(asked) + len(said)] = torch.tensor(asked + said)
            targets[index, len(asked) : len(asked) + len(said)] = torch.tensor(said)
        shown = [example.shown for example in examples if example.shown]
        pixels, labels, mask = ([getattr(s, name) for s in shown] for name in ("pixels", "labels", "mask"))
        return Batch(ids, targets, (_stack(pixels), _stack(labels), _stack(mask)) if shown else None)

    def _row(self, example: Example) -> tuple[list[int], list[int]]:
        text = self._encode(example.text)
        if example.shown:
            text = text + self._picture if self._rng.random() < 0.9 else self._picture + text
        return [self._begin, self._user, *text, self.end, self._answer], [*self._encode(example.answer), self.end]

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _id(self, token: str) -> int:
        return int(self._tokenizer.convert_tokens_to_ids(token))


def _stack(arrays: list[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.stack(arrays))


class PatchLoss(torch.nn.Linear):
    """The auxiliary head over patch embeddings: names of what the patch's cell shows, and the patch's own foreground."""

    SIZES = (len(SHAPES) + 1, len(COLOURS) + 1, len(BACKGROUNDS) + 1, MASK**2)

    def __init__(self, width: int) -> None:
        super().__init__(width, sum(self.SIZES))

    def loss(self, seen: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        *names, drawn = self(seen).split(self.SIZES, -1)
        weights = (1.5, 0.7, 0.7)
        parts = [
            w * F.cross_entropy(n.flatten(0, 1), labels[:, k].flatten())
            for k, (n, w) in enumerate(zip(names, weights, strict=True))
        ]
        return torch.stack(parts).sum() + 2 * F.binary_cross_entropy_with_logits(drawn, mask)


def see(model: Any, pixels: torch.Tensor) -> torch.Tensor:
    """Patch embeddings of whole pictures: float[n, 64, width]."""
    everywhere = torch.ones(len(pixels), PATCHES, PATCHES, dtype=torch.bool)
    return model.model.vision_model(pixel_values=pixels, patch_attention_mask=everywhere).last_hidden_state


def answer_loss(model: Any, batch: Batch, seen: torch.Tensor | None, image: int) -> tuple[torch.Tensor, float]:
    """Cross-entropy of the answers' tokens, and the share of them that greedy decoding would say."""
    embedded = model.model.text_model.embed_tokens(batch.ids)
    if seen is not None:
        tokens = model.model.connector(seen)
        embedded = embedded.masked_scatter((batch.ids == image).unsqueeze(-1), tokens.reshape(-1, tokens.shape[-1]))
    # Padding stands right of everything and attention is causal: no mask is needed.
    hidden = model.model.text_model(inputs_embeds=embedded, use_cache=False).last_hidden_state
    wanted = batch.targets[:, 1:] != -100
    logits, targets = model.lm_head(hidden[:, :-1][wanted]), batch.targets[:, 1:][wanted]
    return F.cross_entropy(logits, targets), (logits.argmax(-1) == targets).float().mean().item()


def _good_beginning(model: Any) -> None:
    """Patch filters as the lowest DCT waves of each channel, positions as sines: edges and places are seen from the start."""
    embeddings = model.model.vision_model.embeddings
    weight = embeddings.patch_embedding.weight.data
    width, channels, side, _ = weight.shape
    steps = torch.arange(side) + 0.5
    waves = [
        torch.cos(math.pi * k * steps / side) * (math.sqrt(1 / side) if k == 0 else math.sqrt(2 / side)) for k in range(side)
    ]
    places = sorted(((u, v) for u in range(side) for v in range(side)), key=lambda uv: (uv[0] + uv[1], max(uv)))
    for index, (u, v) in enumerate(places[: width // channels]):
        for channel in range(channels):
            weight[index * channels + channel] = 0
            weight[index * channels + channel, channel] = torch.outer(waves[u], waves[v]) * (0.15 if u + v == 0 else 0.35)
    embeddings.patch_embedding.bias.data.zero_()
    y, x = (axis.flatten()[:, None] for axis in torch.meshgrid(torch.arange(PATCHES), torch.arange(PATCHES), indexing="ij"))
    turns = math.pi / PATCHES * torch.arange(1, width // 4 + 1) / 2
    sines = torch.cat([torch.sin(y * turns), torch.cos(y * turns), torch.sin(x * turns), torch.cos(x * turns)], 1)
    embeddings.position_embedding.weight.data.copy_(sines * 0.3)


def next_kind(step: int) -> tuple[Kind, bool, int]:
    """What batch this step takes: its kind (even steps have pictures), whether its requests are short, its size."""
    if step % 4 == 3:
        return "text", True, 48
    short = step % 5 in (1, 3)
    return ("single", short, 32) if step % 4 == 0 else ("grid", short, 16)


@dataclass(frozen=True)
class Options:
    out: str
    minutes: float
    lr: float
    seed: int
    processes: int
    init: str | None
    fresh: bool


def train(rank: int, options: Options) -> None:
    """One of `processes` equal workers; gradients are averaged after each step."""
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    processor = AutoProcessor.from_pretrained(MODEL)
    model, head = _begin(options)
    requests = Requests(processor, random.Random(options.seed))
    examples = Examples(f"{options.seed}/{rank}")
    if options.processes > 1:
        dist.init_process_group("gloo", init_method=f"file://{options.out}/.meet", rank=rank, world_size=options.processes)
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=options.lr, betas=(0.9, 0.97), weight_decay=0.02)
    started, step, shown = time.monotonic(), 0, 0
    while (done := _clock(started, options)) < 1:
        alone = options.fresh and done < ALONE
        kind, short, size = next_kind(2 * step if alone else step)
        for group in optimizer.param_groups:
            group["lr"] = options.lr * min(1, (step + 1) / 40) * (1 if alone else 0.02 + 0.49 * (1 + math.cos(math.pi * done)))
        batch = requests.batch(list(examples.stream(kind, size, short)))
        seen = see(model, batch.pictures[0]) if batch.pictures else None
        loss, right = (torch.zeros(()), 0.0) if alone else answer_loss(model, batch, seen, requests.image)
        if batch.pictures and seen is not None:
            loss = loss + (1 if alone else PATCH_LOSS_SHARE) * head.loss(seen, *batch.pictures[1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        _average(parameters, options.processes)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        step, shown = step + 1, shown + size * options.processes
        if rank == 0 and step % 60 < 4:
            print(
                f"{done:6.1%} step {step} {kind:6} loss {loss.item():.4f} tokens right {right:.4f} examples {shown}", flush=True
            )
        if rank == 0 and step % 1000 == 0:
            save(options.out, model, head)
    if rank == 0:
        save(options.out, model, head)
    if options.processes > 1:
        dist.destroy_process_group()


def _begin(options: Options) -> tuple[Any, PatchLoss]:
    model: Any
    if options.fresh:
        model = Idefics3ForConditionalGeneration(Idefics3Config.from_pretrained(MODEL))
        _good_beginning(model)
    else:
        model = Idefics3ForConditionalGeneration.from_pretrained(MODEL, dtype=torch.float32)
    head = PatchLoss(model.config.vision_config.hidden_size)
    if options.init:
        state = torch.load(options.init, weights_only=True)
        model.load_state_dict(state["model"])
        head.load_state_dict(state["head"])
    return model.train(), head


def _clock(started: float, options: Options) -> float:
    """The share of the time that is over, the same on every process."""
    done = torch.tensor([(time.monotonic() - started) / (options.minutes * 60)])
    if options.processes > 1:
        dist.broadcast(done, 0)
    return done.item()


def _average(parameters: Sequence[torch.nn.Parameter], processes: int) -> None:
    if processes == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    for gradient, mean in zip(gradients, (flat / processes).split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def save(out: str, model: Any, head: PatchLoss) -> None:
    """The folder that vLLM loads, and the state for going on."""
    torch.save({"model": model.state_dict(), "head": head.state_dict()}, f"{out}/state.pt")
    served: Any = Idefics3ForConditionalGeneration(model.config)
    served.load_state_dict(model.state_dict())
    served.to(torch.bfloat16).save_pretrained(out)
    for file in Path(MODEL).iterdir():
        if file.name != "model.safetensors":
            shutil.copyfile(file, Path(out) / file.name)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="train the demo model", epilog="see the module's text for how to go on")
    parser.add_argument("out", help="folder for the model; made if missing")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--lr", type=float, default=8e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--init", metavar="STATE", help="state.pt of an earlier run")
    parser.add_argument("--fresh", action="store_true", help="from random weights")
    options = Options(**vars(parser.parse_args(arguments)))
    os.makedirs(options.out, exist_ok=True)
    Path(options.out, ".meet").unlink(missing_ok=True)
    print(json.dumps(vars(options)))
    if options.processes == 1:
        train(0, options)
    else:
        torch.multiprocessing.spawn(train, (options,), nprocs=options.processes)


if __name__ == "__main__":
    main()

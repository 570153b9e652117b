"""Kind batch: requests in OpenAI-batch files, answered by vLLM's run_batch here, or by a batch endpoint while nobody looks.

A row's custom_id is its request_id. Nothing is concluded from a batch as a whole: every row has a status of its own, and a
request without a row has not been answered. There are no canaries in a batch.
"""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import orjson

from caption_assets.config import EngineConfig
from caption_assets.engines.base import ChatReply, ChatRequest, EngineDown, Session
from caption_assets.engines.batch_api import BatchApi, BatchState
from caption_assets.engines.modelfolder import model_folder
from caption_assets.engines.payload import BadBody, Dialect, answer_of, body_parts, message_in
from caption_assets.engines.serverstate import tail_of
from caption_assets.engines.startup import explain
from caption_assets.engines.vllm_args import arguments, environment, gpu_groups

log = logging.getLogger(__name__)

PROGRESS_S = 10


@dataclass(frozen=True)
class FileLimits:
    """When a batch file is full. OpenAI takes 200 MB and 50,000 rows; vLLM holds a whole file in memory several times over."""

    max_bytes: int = 150 << 20
    max_rows: int = 20_000


class BatchEngine:
    """Opened once per process and settings. With engine.endpoints: submit and collect there; without: run_local."""

    kind: str = "batch"

    def __init__(self, config: EngineConfig, limits: FileLimits | None = None, scratch: Path | None = None) -> None:
        if len(config.endpoints) > 1:
            raise EngineDown("engine.endpoints: kind batch takes one endpoint")
        self.config, self.limits = config, limits or FileLimits()
        self._scratch = scratch
        self._dialect: Dialect | None = None
        self.remote = bool(config.endpoints)

    def close(self) -> None:
        """Nothing is held between calls."""

    def session(self) -> AbstractAsyncContextManager[Session]:
        """Batches have none."""
        raise EngineDown("engine.kind batch answers no single requests")

    def submit(self, requests: Iterator[ChatRequest], tag: str) -> str | None:
        """Takes requests until a file is full or they end, and hands the file in; the batch's id, None where there were none.

        tag: unique; a batch that was handed in though nobody heard its id is found by it. Call again for the requests left.
        Raises EngineDown; the requests taken then have to be submitted again, unless `find` knows the tag.
        """
        first = next(requests, None)
        if first is None:
            return None
        api = BatchApi(self.config)
        self._dialect = self._dialect or api.dialect(first)
        with tempfile.TemporaryFile(dir=self._scratch) as file:
            self._write(file, itertools.chain([first], requests), self._dialect)
            file.flush()
            return api.submit(file, tag)

    def find(self, tag: str) -> str | None:
        """The id of the batch that was submitted with this tag; None where there is none."""
        return BatchApi(self.config).find(tag)

    def collect(self, batch_id: str) -> Iterator[ChatReply] | None:
        """The answers of a finished batch, in no order; None while it is open. Raises EngineDown where it failed as a whole."""
        api = BatchApi(self.config)
        state = api.state(batch_id)
        return self._collected(api, state) if state.finished else None

    def _collected(self, api: BatchApi, state: BatchState) -> Iterator[ChatReply]:
        for file_id in state.files:
            with tempfile.TemporaryFile(dir=self._scratch) as file:
                api.download(file_id, file)
                file.seek(0)
                yield from _replies(file, self.config.endpoints[0], state.created_at)

    def run_local(self, requests: Iterable[ChatRequest]) -> Iterator[ChatReply]:
        """Answers through vLLM's run_batch on this machine, one file after the other. Raises EngineDown with vLLM's own words."""
        waiting = iter(requests)
        for number, first in enumerate(waiting):
            with tempfile.TemporaryDirectory(dir=self._scratch, prefix="caption-assets-batch-") as folder:
                rows, answers = Path(folder, "rows.jsonl"), Path(folder, "answers.jsonl")
                with open(rows, "wb") as file:
                    asked = self._write(file, itertools.chain([first], waiting), Dialect())
                log.info("batch file %d: %d requests, %d bytes", number + 1, asked, rows.stat().st_size)
                sent_at = time.time()
                self._run(rows, answers, Path(folder, "log"))
                with open(answers, "rb") as file:
                    yield from _replies(file, "run_batch", sent_at)

    def _write(self, file: IO[bytes], requests: Iterator[ChatRequest], dialect: Dialect) -> int:
        """Rows until the file is full; how many."""
        size = 0
        for count, request in enumerate(requests, 1):
            head = b'{"custom_id":' + orjson.dumps(request.request_id) + b',"method":"POST","url":"/v1/chat/completions","body":'
            for part in (head, *body_parts(request, self.config.model, dialect), b"}\n"):
                size += file.write(part)
            if size >= self.limits.max_bytes or count >= self.limits.max_rows:
                return count
        return count

    def _run(self, rows: Path, answers: Path, log_file: Path) -> None:
        groups = gpu_groups(self.config)
        folder = model_folder(self.config.model)
        args = arguments(self.config, folder, bool(groups[0]))
        if len(groups) > 1 and "--data-parallel-size" not in args:
            args += ["--data-parallel-size", str(len(groups))]
        batch = [sys.executable, "-m", "vllm.entrypoints.openai.run_batch", "-i", str(rows), "-o", str(answers), *args]
        command = [sys.executable, "-m", "caption_assets.engines.leash", *batch]
        added = environment(folder, [name for group in groups for name in group])
        with open(log_file, "wb") as output:
            process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, **added},
                cwd=rows.parent,
                start_new_session=True,
            )
            try:
                self._wait(process, log_file)
            finally:
                process.communicate()  # closes the pipe, which ends what still runs
        if process.returncode or not answers.exists():
            raise EngineDown(explain(self.config.model, log_file, tail_of(log_file, 400), None, process.returncode))

    def _wait(self, process: subprocess.Popen[bytes], log_file: Path) -> None:
        began = time.monotonic()
        while True:
            try:
                process.wait(PROGRESS_S)
                return
            except subprocess.TimeoutExpired:
                last = (tail_of(log_file, 1) or ["no output yet"])[0]
                log.info("vLLM's run_batch with %s, %.0f s: %s", self.config.model, time.monotonic() - began, last[-160:])


def _replies(file: IO[bytes], endpoint: str, sent_at: float) -> Iterator[ChatReply]:
    for line in file:
        if line.strip() and (reply := read_row(line, endpoint, sent_at)):
            yield reply


def read_row(line: bytes, endpoint: str, sent_at: float) -> ChatReply | None:
    """The answer in a row of an output or error file; None where it was not asked: the batch expired or was cancelled."""
    row = orjson.loads(line)
    response, error = row.get("response") or {}, row.get("error")
    status, said = response.get("status_code"), error or response.get("body")
    if status == 200 and not error:
        try:
            answer = answer_of(response.get("body"))
        except BadBody as fault:
            return _failed(row["custom_id"], f"model_error: {fault}", endpoint, sent_at)
        text, finish, prompt_tokens, completion_tokens = answer
        return ChatReply(row["custom_id"], text, finish, None, prompt_tokens, completion_tokens, 0.0, endpoint, sent_at)
    if status is None and isinstance(error, dict) and error.get("code") in ("batch_expired", "batch_cancelled"):
        return None
    return _failed(row["custom_id"], f"model_error: {status}: {message_in(said)}", endpoint, sent_at)


def _failed(request_id: str, error: str, endpoint: str, sent_at: float) -> ChatReply:
    return ChatReply(request_id, None, None, error, None, None, 0.0, endpoint, sent_at)

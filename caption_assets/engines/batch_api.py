"""The batch endpoint of an OpenAI-compatible API: files and batches. Blocking calls, for use outside of event loops."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import IO, Any, NamedTuple, TypeVar

import aiohttp
import orjson

from caption_assets.config import EngineConfig
from caption_assets.core.hiding import hidden
from caption_assets.engines.base import ChatRequest, EngineDown, WrongSettings
from caption_assets.engines.client import Came, Client, http_session
from caption_assets.engines.payload import Dialect, error_message

T = TypeVar("T")
Call = Callable[[aiohttp.ClientSession], Awaitable[T]]

TRIES = 5
TAG = "caption_assets"
STILL_OPEN = ("validating", "in_progress", "finalizing", "cancelling")


class BatchState(NamedTuple):
    """finished: nothing more will come. files: the ids of its output and error files, each perhaps missing."""

    finished: bool
    files: tuple[str, ...]
    created_at: float


class BatchFailed(EngineDown):
    """A batch failed as a whole: nothing of it was answered, its requests have to be submitted again."""


class _Again(Exception):
    """A fault that may pass."""


class BatchApi:
    """One endpoint. Every fault that stays is an EngineDown, which names the endpoint and what it said."""

    def __init__(self, config: EngineConfig) -> None:
        self._url, self._config = config.endpoints[0], config
        name = config.api_key_env
        self._key = os.environ.get(name) if name else None
        if name and not self._key:
            raise WrongSettings(f"engine.api_key_env: the environment variable {name} is not set")
        self._headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def dialect(self, request: ChatRequest) -> Dialect:
        """What the endpoint accepts, asked with one small text request: a refused parameter would cost a whole batch."""
        sampling = {**request.sampling, "max_tokens": 8}
        probe = replace(request, text="Say one word.", image=None, image_type=None, sampling=sampling)

        async def ask(http: aiohttp.ClientSession) -> Dialect:
            client = Client(http, self._url, self._config.model, self._key, self._config.api_key_env)
            outcome = await asyncio.wait_for(client.ask(probe), 60)
            if outcome.came is Came.DENIED and not outcome.message.startswith(f"endpoint {self._url}: no OpenAI API"):
                raise EngineDown(outcome.message)
            return client.dialect

        return self._run(ask)

    def submit(self, file: IO[bytes], tag: str) -> str:
        """Uploads the file and makes a batch of it; its id."""
        file_id = self._run(lambda http: self._upload(http, file, tag))
        wanted = {
            "input_file_id": file_id,
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "metadata": {TAG: tag},
        }

        tried = False

        async def create(http: aiohttp.ClientSession) -> str:
            nonlocal tried
            if tried and (found := await self._find(http, tag)):  # the first try came through, though its answer did not
                return found
            tried = True
            return str((await self._json(http, "POST", "/batches", json=wanted))["id"])

        return self._run(create)

    async def _upload(self, http: aiohttp.ClientSession, file: IO[bytes], tag: str) -> str:
        file.seek(0)
        with open(os.dup(file.fileno()), "rb") as copy:  # aiohttp closes what it has sent
            form = aiohttp.FormData({"purpose": "batch"})
            form.add_field("file", copy, filename=f"{tag}.jsonl", content_type="application/jsonl")
            return str((await self._json(http, "POST", "/files", data=form))["id"])

    def find(self, tag: str) -> str | None:
        """The id of the batch with this tag."""
        return self._run(lambda http: self._find(http, tag))

    async def _find(self, http: aiohttp.ClientSession, tag: str) -> str | None:
        after: dict[str, str] = {}
        while True:
            page = await self._json(http, "GET", "/batches", params={"limit": "100", **after})
            for batch in page["data"]:
                if (batch.get("metadata") or {}).get(TAG) == tag:
                    return str(batch["id"])
            if not page.get("has_more") or not page["data"]:
                return None
            after = {"after": page["data"][-1]["id"]}

    def state(self, batch_id: str) -> BatchState:
        """Raises BatchFailed where the batch failed as a whole."""
        batch = self._run(lambda http: self._json(http, "GET", f"/batches/{batch_id}"))
        files = tuple(batch[name] for name in ("output_file_id", "error_file_id") if batch.get(name))
        if batch["status"] == "failed" and not files:
            faults = [str(fault.get("message")) for fault in (batch.get("errors") or {}).get("data") or ()]
            raise BatchFailed(f"endpoint {self._url}: batch {batch_id} failed: {'; '.join(faults) or 'it does not say why'}")
        return BatchState(batch["status"] not in STILL_OPEN, files, float(batch.get("created_at") or 0))

    def download(self, file_id: str, file: IO[bytes]) -> None:
        """The content of a file, whole."""

        async def get(http: aiohttp.ClientSession) -> None:
            file.seek(0)
            file.truncate()
            async with http.get(f"{self._url}/files/{file_id}/content", headers=self._headers) as response:
                await self._check(response)
                async for piece in response.content.iter_chunked(1 << 20):
                    file.write(piece)

        self._run(get)

    def _run(self, call: Call[T]) -> T:
        return asyncio.run(self._tried(call))

    async def _tried(self, call: Call[T]) -> T:
        async with http_session() as http:
            for tries in range(1, TRIES + 1):
                try:
                    return await call(http)
                except (_Again, aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
                    if tries == TRIES:
                        raise EngineDown(f"endpoint {self._url}: {hidden(str(error)) or type(error).__name__}") from None
                await asyncio.sleep(0.5 * 2**tries)
        raise AssertionError("not reached")

    async def _json(self, http: aiohttp.ClientSession, method: str, path: str, **options: Any) -> dict[str, Any]:
        async with http.request(method, self._url + path, headers=self._headers, **options) as response:
            await self._check(response)
            value = orjson.loads(await response.read())
        if not isinstance(value, dict):
            raise _Again(f"{path} answers with no JSON object")
        return value

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        if response.status == 200:
            return
        message = f"{response.method} {response.url.path}: {response.status}: {error_message(await response.read(), self._key)}"
        if response.status == 429 or response.status >= 500:
            raise _Again(message)
        raise EngineDown(f"endpoint {self._url}: {message}")

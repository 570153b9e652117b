"""The batch part of the stub server: files and batches, answered as its chat would be."""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.Response]]


class BatchDesk:
    """open_s: how long a batch stays open; lose_create: answers to creating a batch that get lost after it was made."""

    def __init__(self, answer: Answer) -> None:
        self.open_s = 0.0
        self.lose_create = 0
        self.fail_with: str | None = None
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self._answer = answer
        self._numbers = itertools.count(1)

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/files", self._upload)
        app.router.add_get("/v1/files/{id}/content", self._content)
        app.router.add_post("/v1/batches", self._create)
        app.router.add_get("/v1/batches", self._list)
        app.router.add_get("/v1/batches/{id}", self._state)

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        assert form["purpose"] == "batch"
        name = f"file-{next(self._numbers)}"
        self.files[name] = form["file"].file.read()  # type: ignore[union-attr]
        return web.json_response({"id": name, "object": "file"})

    async def _content(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["id"]])

    async def _create(self, request: web.Request) -> web.Response:
        wanted = orjson.loads(await request.read())
        name = f"batch-{next(self._numbers)}"
        batch = {"id": name, "object": "batch", "status": "in_progress", "created_at": int(time.time()), **wanted}
        self.batches[name] = batch
        if self.fail_with:
            batch |= {"status": "failed", "errors": {"data": [{"message": self.fail_with}]}}
        else:
            await self._work(request, batch)
        if self.lose_create:
            self.lose_create -= 1
            return web.json_response({"error": {"message": "bad gateway"}}, status=502)
        return web.json_response(batch)

    async def _work(self, request: web.Request, batch: dict[str, Any]) -> None:
        """Answers every row; good ones and bad ones go to different files."""
        good, bad = b"", b""
        for line in self.files[batch["input_file_id"]].splitlines():
            row = orjson.loads(line)
            answer = await self._answer(request, row["body"])
            response = {"status_code": answer.status, "body": orjson.loads(answer.body)}  # type: ignore[arg-type]
            out = orjson.dumps({"id": "x", "custom_id": row["custom_id"], "response": response, "error": None}) + b"\n"
            good, bad = (good + out, bad) if answer.status == 200 else (good, bad + out)
        for key, content in (("output_file_id", good), ("error_file_id", bad)):
            batch[key] = f"file-{next(self._numbers)}" if content else None
            if content:
                self.files[batch[key]] = content

    async def _state(self, request: web.Request) -> web.Response:
        batch = self.batches.get(request.match_info["id"])
        if batch is None:
            return web.json_response({"error": {"message": "no such batch"}}, status=404)
        return web.json_response(self._as_of_now(batch))

    async def _list(self, request: web.Request) -> web.Response:
        batches = list(reversed(self.batches.values()))
        after, limit = request.query.get("after"), min(2, int(request.query.get("limit", 2)))
        start = 1 + next(n for n, batch in enumerate(batches) if batch["id"] == after) if after else 0
        page = [self._as_of_now(batch) for batch in batches[start : start + limit]]
        return web.json_response({"object": "list", "data": page, "has_more": start + limit < len(batches)})

    def _as_of_now(self, batch: dict[str, Any]) -> dict[str, Any]:
        if batch["status"] == "failed":
            return batch
        if time.time() - batch["created_at"] < self.open_s:
            return {k: v for k, v in batch.items() if k not in ("output_file_id", "error_file_id")}
        return {**batch, "status": "completed"}

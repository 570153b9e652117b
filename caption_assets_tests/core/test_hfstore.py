"""hf:// sources, against a small stand-in for the hub on loopback."""

from __future__ import annotations

import builtins
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from caption_assets.core.objectstore import NotAFile, ObjectError, ObjectMissing, ObjectStore

hub = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")

ROOT = "hf://datasets/me/photos"
FILES = {"a.jpg": os.urandom(3000), "set/b c+%.jpg": b"b" * 10, "set/é#1.tar": os.urandom(200_000), "set2/x": b""}


class Hub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    failures = 0

    def log_message(self, *args: object) -> None: ...

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        path = unquote(urlsplit(self.path).path)
        if type(self).failures:
            type(self).failures -= 1
            return self.answer(503, b"")
        if "/me/photos" not in path:
            return self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        if tree := re.fullmatch(r"/api/datasets/me/photos/tree/main/?(.*)", path):
            return self.entries([p for p in FILES if p.startswith(tree[1] + "/" * bool(tree[1]))], missing=bool(tree[1]))
        if path.startswith("/api/datasets/me/photos/paths-info/main"):
            asked = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body)["paths"]
            return self.entries([p for p in FILES if p in asked], folders=[p for p in asked if p == "set"])
        if path.startswith("/api/datasets/me/photos"):
            return self.answer(200, b'{"id": "me/photos", "sha": "abc", "tags": [], "siblings": []}')
        data = FILES.get(path.removeprefix("/datasets/me/photos/resolve/main/"))
        if data is None:
            return self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        start = int(self.headers["Range"][6:].split("-")[0]) if "Range" in self.headers else 0
        if start and start >= len(data):
            return self.answer(416, b"")
        return self.answer(206 if start else 200, data[start:])

    do_POST = do_GET

    def entries(self, paths: list[str], folders: list[str] = [], missing: bool = False) -> None:  # noqa: B006
        if missing and not paths:
            return self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        found = [{"type": "file", "path": p, "size": len(FILES[p]), "oid": f"oid-{p}"} for p in reversed(paths)]
        return self.answer(200, json.dumps(found + [{"type": "directory", "path": p, "oid": "x"} for p in folders]).encode())

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    endpoint, usual = f"http://127.0.0.1:{server.server_address[1]}", constants.ENDPOINT
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(usual, endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    hub.HfFileSystem.clear_instance_cache()
    yield ObjectStore()
    hub.HfFileSystem.clear_instance_cache()
    server.shutdown()
    server.server_close()


def test_files_are_listed_in_order_with_sizes_and_etags(objects: ObjectStore) -> None:
    found = list(objects.list(f"{ROOT}/"))
    assert [(info.uri, info.size) for info in found] == [(f"{ROOT}/{path}", len(FILES[path])) for path in sorted(FILES)]
    assert len({info.etag for info in found}) == len(FILES)
    assert [info.uri for info in objects.list(f"{ROOT}/set/")] == [f"{ROOT}/set/b c+%.jpg", f"{ROOT}/set/é#1.tar"]
    assert [info.uri for info in objects.list(f"{ROOT}/", start_after=found[2].uri)] == [found[3].uri]
    assert list(objects.list(f"{ROOT}/nothing/")) == []


@pytest.mark.parametrize("path", FILES)
def test_files_are_read_whole_in_parts_and_streamed(objects: ObjectStore, path: str) -> None:
    uri, data = f"{ROOT}/{path}", FILES[path]
    assert objects.head(uri).size == len(data)
    assert objects.read(uri) == data
    assert objects.read(uri, 5, 3) == data[5:8]
    assert objects.read(uri, 300_000, 3) == b""
    with objects.open(uri, 2) as stream:
        assert stream.read() == data[2:]
    assert next(objects.read_many([(uri, 0, 4), (f"{ROOT}/nope", 0, None)])) == data[:4]


def test_what_is_not_there(objects: ObjectStore) -> None:
    for uri in (f"{ROOT}/nope", "hf://datasets/me/other/x", "hf://models/x", "hf://datasets/x"):
        for ask in (objects.read, objects.head, objects.open):
            with pytest.raises(ObjectMissing):
                ask(uri)
    with pytest.raises(ObjectMissing, match="HF_TOKEN"):
        list(objects.list("hf://datasets/me/other/"))
    with pytest.raises(NotAFile):
        objects.head(f"{ROOT}/set")


def test_a_busy_hub_is_asked_again(objects: ObjectStore) -> None:
    Hub.failures = 1
    assert objects.head(f"{ROOT}/a.jpg").size == 3000


def test_nothing_is_written_there(objects: ObjectStore) -> None:
    with pytest.raises(ObjectError, match="nothing is written"):
        objects.put(f"{ROOT}/x", b"")


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.delitem(sys.modules, "caption_assets.core.storage.hfstore", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ObjectError, match=r"pip install 'caption-assets\[hf\]'"):
        ObjectStore().read(f"{ROOT}/a.jpg")

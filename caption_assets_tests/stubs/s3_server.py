"""A small S3 that misbehaves on demand: busy, broken or short answers, ghosts, another region, no conditional puts.

Path-style, one bucket, loopback, in this process; signatures are read, not checked. Also answers STS AssumeRole, with a new
key each time that runs out after a few seconds.
"""

from __future__ import annotations

import email.utils
import hashlib
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from caption_assets.config import S3Config
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.storage.s3store import S3Objects

NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


@dataclass
class Fault:
    """The first `times` requests (-1: all) of `op` (GET HEAD PUT LIST) for `key` (*: any) go wrong: an error `status`, or a
    good answer whose connection ends after `cut` bytes of body; `then` replaces the object's bytes afterwards."""

    op: str = "GET"
    key: str = "*"
    times: int = -1
    status: int = 503
    code: str = "SlowDown"
    cut: int | None = None
    then: bytes | None = None
    seen: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    op: str
    key: str
    status: int
    query: dict[str, str]
    headers: dict[str, str]
    at: float

    @property
    def access_key(self) -> str:
        return self.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]


class FakeS3:
    """`with FakeS3({"set/a.jpg": b"…"}, faults=[…]) as s3:` then `s3.store()`, `s3.log`."""

    def __init__(
        self,
        objects: dict[str, bytes] | None = None,
        faults: Iterable[Fault] = (),
        bucket: str = "cases",
        region: str = "us-east-1",
        wrong_region: str = "301",
        ghosts: Iterable[str] = (),
        conditional: str = "honoured",
        page: int = 1000,
    ) -> None:
        self.objects, self.faults, self.bucket, self.region = dict(objects or {}), list(faults), bucket, region
        self.wrong_region, self.ghosts, self.conditional, self.page = wrong_region, set(ghosts), conditional, page
        self.log: list[Asked] = []
        self.roles = 0
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"s3": self}))
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeS3:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def config(self, **settings: Any) -> S3Config:
        return S3Config(**{"endpoint_url": self.endpoint, "region": "us-east-1", **settings})

    def store(self, patience_s: float = 60.0, **settings: Any) -> ObjectStore:
        store = ObjectStore(self.config(**settings))
        store._s3 = S3Objects(self.config(**settings), patience_s)
        return store

    def asked(self, op: str, key: str | None = None) -> list[Asked]:
        return [a for a in self.log if a.op == op and key in (None, a.key)]

    def fault(self, op: str, key: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.op == op and fault.key in ("*", key) and fault.times not in range(fault.seen.get(key, 0) + 1):
                    fault.seen[key] = fault.seen.get(key, 0) + 1
                    return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    s3: FakeS3

    def log_message(self, *args: object) -> None: ...

    def handle(self) -> None:
        try:
            super().handle()
        except (BrokenPipeError, ConnectionResetError):
            pass

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        self.query = {k: v[0] for k, v in parse_qs(url.query, keep_blank_values=True).items()}
        bucket, _, self.key = unquote(url.path)[1:].partition("/")
        self.op = "LIST" if self.command == "GET" and not self.key else self.command
        if self.command == "POST" and b"Action=AssumeRole" in body:
            return self.assume_role()
        if bucket != self.s3.bucket:
            return self.error(404, "NoSuchBucket")
        if self.command == "HEAD" and not self.key:
            return self.answer(200, b"", {"x-amz-bucket-region": self.s3.region})
        signed = re.search(r"Credential=[^/]+/\d+/([^/]+)/", self.headers.get("Authorization", ""))
        if signed and signed[1] != self.s3.region:
            return self.elsewhere()
        fault = self.s3.fault(self.op, self.query.get("prefix", "") if self.op == "LIST" else self.key)
        if fault and fault.cut is None:
            return self.error(fault.status, fault.code)
        if self.op == "LIST":
            return self.list()
        if self.op in ("GET", "HEAD"):
            return self.get(fault)
        return self.put(body) if self.op == "PUT" else self.delete()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None, cut: int | None = None) -> None:
        seen = {k.lower(): v for k, v in self.headers.items()}
        self.s3.log.append(Asked(self.op, self.key, status, self.query, seen, time.monotonic()))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:cut])
        if cut is not None:
            self.close_connection = True

    def error(self, status: int, code: str, headers: dict[str, str] | None = None, extra: str = "") -> None:
        text = f"<Error><Code>{code}</Code><Message>{code}</Message>{extra}<Key>{escape(self.key)}</Key></Error>"
        self.answer(status, text.encode(), {"Content-Type": "application/xml", **(headers or {})})

    def elsewhere(self) -> None:
        if self.s3.wrong_region == "301":
            return self.error(301, "PermanentRedirect", {"x-amz-bucket-region": self.s3.region})
        if self.s3.wrong_region == "400":
            return self.error(400, "AuthorizationHeaderMalformed", extra=f"<Region>{self.s3.region}</Region>")
        return self.error(403, "AccessDenied")

    def get(self, fault: Fault | None) -> None:
        data = self.s3.objects.get(self.key)
        if data is None or self.key in self.s3.ghosts:
            return self.error(404, "NoSuchKey")
        etag = _etag(data)
        if self.headers.get("If-Match", etag) != etag:
            return self.error(412, "PreconditionFailed")
        headers = {"ETag": etag, "Last-Modified": email.utils.formatdate(1_700_000_000, usegmt=True)}
        status, part = 200, data
        if asked := re.match(r"bytes=(\d+)-(\d*)$", self.headers.get("Range", "")):
            first, last = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
            if first >= len(data):
                return self.error(416, "InvalidRange")
            status, part = 206, data[first : last + 1]
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        self.answer(status, part, headers, fault.cut if fault else None)
        if fault and fault.then is not None:
            self.s3.objects[self.key] = fault.then
        return None

    def put(self, body: bytes) -> None:
        if self.headers.get("If-None-Match") == "*":
            if self.s3.conditional == "refused":
                return self.error(501, "NotImplemented")
            if self.s3.conditional == "honoured" and self.key in self.s3.objects:
                return self.error(412, "PreconditionFailed")
        self.s3.objects[self.key] = body
        if self.s3.fault("PUT-ANSWER", self.key):
            self.close_connection = True
            return None
        return self.answer(200, b"", {"ETag": _etag(body)})

    def delete(self) -> None:
        self.s3.objects.pop(self.key, None)
        self.answer(204, b"")

    def list(self) -> None:
        prefix, after = self.query.get("prefix", ""), self.query.get("continuation-token") or self.query.get("start-after") or ""
        keys = sorted(k for k in self.s3.objects if k.startswith(prefix) and k > after)
        if self.query.get("delimiter"):
            self.folders(prefix, keys)
            return
        page = keys[: self.s3.page]
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(keys) > len(page) else ""
        entries = "".join(
            f"<Contents><Key>{quote(k)}</Key><LastModified>2023-11-14T22:13:20.000Z</LastModified>"
            f"<ETag>{escape(_etag(self.s3.objects[k]))}</ETag><Size>{len(self.s3.objects[k])}</Size></Contents>"
            for k in page
        )
        truncated = "true" if more else "false"
        head = f"<EncodingType>url</EncodingType><IsTruncated>{truncated}</IsTruncated>{more}"
        self.answer(200, f"<ListBucketResult {NAMESPACE}>{head}{entries}</ListBucketResult>".encode())

    def folders(self, prefix: str, keys: Iterable[str]) -> None:
        """Common prefixes alone, a page of them; the token is a key behind all of the last one."""
        names = dict.fromkeys(k[: k.index("/", len(prefix)) + 1] for k in keys if "/" in k[len(prefix) :])
        page = list(names)[: self.s3.page]
        more = f"<NextContinuationToken>{escape(page[-1])}\U0010ffff</NextContinuationToken>" if len(names) > len(page) else ""
        entries = "".join(f"<CommonPrefixes><Prefix>{quote(name)}</Prefix></CommonPrefixes>" for name in page)
        truncated = "true" if more else "false"
        head = f"<EncodingType>url</EncodingType><IsTruncated>{truncated}</IsTruncated>{more}"
        self.answer(200, f"<ListBucketResult {NAMESPACE}>{head}{entries}</ListBucketResult>".encode())

    def assume_role(self) -> None:
        self.s3.roles += 1
        ends = (datetime.now(timezone.utc) + timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.answer(
            200,
            f'<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
            f"<AccessKeyId>ROLE{self.s3.roles}</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
            f"<Expiration>{ends}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>".encode(),
        )


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'

"""What a catalog's http(s) addresses may reach, and what comes of each answer."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from caption_assets.core.faults import PictureFault
from caption_assets.core.storage import web
from caption_assets.core.storage.web import fetch_http, is_public

PICTURE = b"\xff\xd8 a picture " * 100
asked: list[tuple[str, dict[str, str]]] = []


class Site(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None: ...

    def do_GET(self) -> None:
        asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        kind, _, rest = self.path[1:].partition("/")
        if kind == "to":
            self.answer(302, b"", Location=rest)
        elif kind == "again":
            self.answer(302, b"", Location=f"/again/{int(rest) - 1}" if int(rest) > 1 else "/picture")
        elif kind == "status":
            self.answer(int(rest), b"no")
        elif kind == "busy" and sum(path == self.path for path, _ in asked) <= int(rest):
            self.answer(503, b"", **{"Retry-After": "0"})
        elif kind == "short":
            self.answer(200, PICTURE, cut=10)
        elif kind == "slow":
            time.sleep(2)
            self.close_connection = True
        elif kind == "drip":
            self.send_response(200)
            self.end_headers()
            try:
                for _ in range(2000):
                    self.wfile.write(b"x")
                    time.sleep(0.05)
            except OSError:
                pass
        elif kind == "endless":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
            except OSError:
                pass
        else:
            self.answer(200, PICTURE, **{"Set-Cookie": "a=b"})

    def answer(self, status: int, body: bytes, cut: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:cut])
        self.close_connection = cut is not None


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A web server; 127.0.0.1 counts as public in this test, nothing else does that is not."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setattr(web, "is_public", lambda address: address == "127.0.0.1" or is_public(address))
    asked.clear()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def fault(url: str, **settings: Any) -> PictureFault:
    with pytest.raises(PictureFault) as caught:
        fetch_http(url, settings.pop("max_bytes", 10_000), **settings)
    return caught.value


PRIVATE = [
    "127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "0.1.2.3", "100.64.0.1",
    "192.0.0.8", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fc00::1",
    "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::8.8.8.8", "64:ff9b::8.8.8.8",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::1", "2002:808:808::1", "2001:0:1::1",
]  # fmt: skip


def test_what_is_public() -> None:
    assert not [address for address in PRIVATE if is_public(address)]
    assert all(is_public(address) for address in ("8.8.8.8", "2606:4700::1111", "192.1.1.1"))
    assert not any(is_public(text) for text in ("", "localhost", "127.1", "2130706433", "0x7f000001", "fe80::1%eth0"))


@pytest.mark.parametrize(
    "address", [*PRIVATE, "127.1", "2130706433", "0177.0.0.1", "localhost", "0x7f.0.0.1", "127.0.0.1.", "ⓛocalhost"]
)
def test_private_addresses_are_never_connected_to(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    assert fault(f"http://{host}:9/x").fault.reason == "forbidden_address"


def test_a_picture_comes_with_the_name_in_host_and_nothing_secret(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert fetch_http(f"{site}/a%20b/é.jpg?x=1#top", 10_000) == PICTURE
    fetch_http(f"{site}/picture", len(PICTURE))
    (path, headers), (_, later) = asked
    assert path == "/a%20b/%C3%A9.jpg?x=1"
    assert headers["host"] == site.removeprefix("http://")
    assert not {"cookie", "authorization", "referer"} & (set(headers) | set(later))


def test_a_name_is_resolved_once_and_that_address_is_used(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second answer would lead inside: it is never asked for."""
    answers = [["127.0.0.1"], ["10.0.0.1"]]
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "rebind.test":
            return real(host, port, *args, **kwargs)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers.pop(0)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    port = site.rpartition(":")[2]
    assert fetch_http(f"http://rebind.test:{port}/picture", 10_000) == PICTURE
    assert asked[0][1]["host"] == f"rebind.test:{port}"
    assert answers == [["10.0.0.1"]]
    answers.insert(0, ["10.0.0.1", "192.168.0.1"])
    assert fault(f"http://rebind.test:{int(port) ^ 1}/picture").fault.reason == "forbidden_address"


@pytest.mark.parametrize(
    "place", ["http://127.0.0.2/", "http://169.254.169.254/latest/", "//127.0.0.3:1/", "file:///etc/passwd", "ftp://x/"]
)
def test_redirects_lead_nowhere_forbidden(site: str, place: str) -> None:
    assert fault(f"{site}/to/{place}").fault.reason == "forbidden_address"


def test_five_redirects_are_followed_and_no_more(site: str) -> None:
    assert fetch_http(f"{site}/again/5", 10_000) == PICTURE
    assert fetch_http(f"{site}/to/{site}/picture", 10_000) == PICTURE
    assert fault(f"{site}/again/6").fault.reason == "s3_error"


@pytest.mark.parametrize(
    ("place", "reason"),
    [("status/404", "object_missing"), ("status/410", "object_missing"), ("status/403", "s3_error"), ("short", "s3_error")],
)
def test_answers_become_reasons(site: str, place: str, reason: str) -> None:
    assert fault(f"{site}/{place}").fault.reason == reason


def test_busy_servers_are_asked_again_a_few_times(site: str) -> None:
    assert fetch_http(f"{site}/busy/2", 10_000) == PICTURE
    assert fault(f"{site}/busy/9").fault.reason == "throttled"
    assert len(asked) == 3 + web.ATTEMPTS


def test_slow_servers_end_in_time(site: str) -> None:
    for place in ("slow", "drip"):
        started = time.monotonic()
        assert fault(f"{site}/{place}", timeout=0.5).fault.reason == "timeout"
        assert time.monotonic() - started < 60  # the drip alone would take longer


def test_bodies_are_bounded(site: str) -> None:
    assert fault(f"{site}/picture", max_bytes=len(PICTURE) - 1).fault.reason == "too_many_pixels"
    assert fault(f"{site}/endless", max_bytes=100_000).fault.reason == "too_many_pixels"


def test_what_is_no_web_address(site: str) -> None:
    for url in (
        "",
        "x",
        "http://",
        "http:///x",
        "http://x:99999/",
        "http://[::1/",
        "http://a\ud83d/",
        "ftp://x/",
        "http://a b/\n",
    ):
        assert fault(url).fault.reason in ("unsupported_uri", "object_missing")
    message = str(fault("http://me:hush@example.com/x?Signature=hush"))
    assert message.startswith("forbidden_address")
    assert "hush" not in message


def test_the_certificate_must_be_that_of_the_name(site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=other.test", "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")]
    subprocess.run(made, check=True, capture_output=True)
    context, names = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), []
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    context.sni_callback = lambda connection, name, own: names.append(name)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    port = server.server_address[1]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert "certificate" in str(fault(f"https://pictures.test:{port}/x"))
    assert names == ["pictures.test"]
    server.shutdown()
    server.server_close()

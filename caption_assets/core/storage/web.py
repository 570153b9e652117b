"""Pictures at http(s) addresses that a catalog names: public addresses only, whatever names and redirects say.

Every connection is opened to a numeric address that is checked at that moment, just before the socket is made, and the name
goes into Host and TLS only: a name that resolves differently a moment later changes nothing. Each redirect is checked in the
same way. No proxies, cookies or credentials.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import functools
import ipaddress
import os
import random
import socket
import threading
from typing import Any
from urllib.parse import urljoin

import aiohttp
from yarl import URL

from caption_assets.core.faults import PictureFault
from caption_assets.core.hiding import hidden

REDIRECTS = 5
ATTEMPTS = 3
TIMEOUT_S, CONNECT_TIMEOUT_S, SILENCE_S = 60.0, 10.0, 20.0
HEADERS = {"User-Agent": "caption-assets", "Accept": "image/*, */*;q=0.5", "Accept-Encoding": "identity"}

_NOT_PUBLIC = "is no public address"
# What older Pythons take for global, and IPv6 addresses that stand for an IPv4 address: a gateway decides what is behind those.
_NEVER = tuple(
    map(
        ipaddress.ip_network,
        (
            *("192.0.0.0/24", "192.88.99.0/24", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fec0::/10"),
            *("::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16"),
        ),
    )
)


def fetch_http(url: str, max_bytes: int, timeout: float = TIMEOUT_S) -> bytes:
    """The body at `url`, at most `max_bytes`, within `timeout` seconds in all. Callable from any thread.

    Raises PictureFault: unsupported_uri, forbidden_address, object_missing, too_many_pixels (a body that is too large),
    throttled, timeout, s3_error (any other fault of the server or of the way to it).
    """
    return asyncio.run_coroutine_threadsafe(_within(url, max_bytes, timeout), _loop(os.getpid())).result()


def is_public(address: str) -> bool:
    """Whether a numeric address is one that anyone on the internet reaches."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if any(ip in network for network in _NEVER):
        return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)


@functools.lru_cache(maxsize=1)
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """The event loop that all fetches of this process run in."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="fetch-http", daemon=True).start()
    return loop


@functools.lru_cache(maxsize=1)
def _session(loop: asyncio.AbstractEventLoop) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=64, limit_per_host=8, use_dns_cache=False, socket_factory=_checked_socket)
    cookies = aiohttp.DummyCookieJar(loop=loop)
    session = aiohttp.ClientSession(
        connector=connector, cookie_jar=cookies, trust_env=False, auto_decompress=False, headers=HEADERS
    )
    atexit.register(_close, session, loop, os.getpid())
    return session


def _close(session: aiohttp.ClientSession, loop: asyncio.AbstractEventLoop, process: int) -> None:
    if os.getpid() == process:
        asyncio.run_coroutine_threadsafe(session.close(), loop).result(timeout=5)


def _checked_socket(found: Any) -> socket.socket:
    """What every connection goes through, with the address that will be connected to."""
    family, kind, protocol, _, address = found
    if not is_public(address[0]):
        raise OSError(errno.EACCES, f"{address[0]} {_NOT_PUBLIC}")
    return socket.socket(family, kind, protocol)


async def _within(url: str, max_bytes: int, timeout: float) -> bytes:
    try:
        return await asyncio.wait_for(_patiently(url, max_bytes), timeout)
    except (asyncio.TimeoutError, TimeoutError):
        raise PictureFault("timeout", f"{_shown(url)}: not read within {timeout:.0f} s") from None


async def _patiently(url: str, max_bytes: int) -> bytes:
    attempt = 0
    while True:
        attempt += 1
        try:
            return await _follow(url, max_bytes)
        except _Busy as busy:
            if attempt == ATTEMPTS:
                raise PictureFault(busy.reason, busy.detail) from None
            await asyncio.sleep(max(busy.after_s, 0.5 * 2**attempt * random.uniform(0.5, 1)))


class _Busy(Exception):
    """A fault that may pass."""

    def __init__(self, reason: str, detail: str, after_s: float = 0.0) -> None:
        self.reason, self.detail, self.after_s = reason, detail, after_s


async def _follow(url: str, max_bytes: int) -> bytes:
    first, session = url, _session(asyncio.get_running_loop())
    for _ in range(REDIRECTS + 1):
        target = _target(url, first)
        try:
            async with session.get(target, allow_redirects=False, timeout=_TIMEOUTS) as answer:
                if answer.status not in (301, 302, 303, 307, 308) or "Location" not in answer.headers:
                    return await _body(answer, url, max_bytes)
                url = urljoin(url, answer.headers["Location"])
        except (aiohttp.ClientError, OSError) as error:
            raise _connection_fault(error, url) from None
    raise PictureFault("s3_error", f"{_shown(first)}: more than {REDIRECTS} redirects")


_TIMEOUTS = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_S)


def _target(url: str, first: str) -> URL:
    """The address to ask, when it is one that may be asked at all; names are checked when they have become numbers."""
    try:
        target = URL(url)
        host, scheme = target.host or "", target.scheme
        target.port  # noqa: B018 # raises when it is none
        host.encode()
    except ValueError:
        raise PictureFault("unsupported_uri", f"{_shown(url)}: is no web address") from None
    if scheme not in ("http", "https") or not host:
        reason = "unsupported_uri" if url == first else "forbidden_address"
        raise PictureFault(reason, f"{_shown(url)}: only http and https addresses are read")
    if target.user is not None or target.password is not None:
        raise PictureFault("forbidden_address", f"{_shown(url)}: an address with a user or password is not used")
    numeric = ":" in host or host.replace(".", "").isdigit()  # what aiohttp does not resolve
    if numeric and not is_public(host):
        raise PictureFault("forbidden_address", f"{_shown(url)}: {host} {_NOT_PUBLIC}")
    return target


async def _body(answer: aiohttp.ClientResponse, url: str, max_bytes: int) -> bytes:
    if answer.status in (404, 410):
        raise PictureFault("object_missing", f"{_shown(url)}: answered {answer.status}")
    if answer.status in (429, 503):
        after = answer.headers.get("Retry-After", "")
        raise _Busy("throttled", f"{_shown(url)}: answered {answer.status}", min(float(after), 600.0) if after.isdigit() else 0.0)
    if answer.status >= 500 or answer.status == 408:
        raise _Busy("s3_error", f"{_shown(url)}: answered {answer.status}")
    if not 200 <= answer.status < 300:
        raise PictureFault("s3_error", f"{_shown(url)}: answered {answer.status}")
    pieces, size = [], 0
    while size <= max_bytes and (answer.content_length or 0) <= max_bytes and (piece := await answer.content.readany()):
        pieces.append(piece)
        size += len(piece)
    if max(size, answer.content_length or 0) > max_bytes:
        answer.close()
        raise PictureFault("too_many_pixels", f"{_shown(url)}: more than the {max_bytes} bytes that images.max_bytes allows")
    return b"".join(pieces)


def _connection_fault(error: Exception, url: str) -> Exception:
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
        return _Busy("timeout", f"{_shown(url)}: no answer for {SILENCE_S:.0f} s")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        if isinstance(error.os_error, socket.gaierror) and error.os_error.errno == socket.EAI_AGAIN:
            return _Busy("s3_error", f"{_shown(url)}: names cannot be resolved now")
        return PictureFault("object_missing", f"{_shown(url)}: the host does not exist")
    if _NOT_PUBLIC in str(error):
        return PictureFault("forbidden_address", f"{_shown(url)}: the host has an address that {_NOT_PUBLIC}")
    if isinstance(error, aiohttp.InvalidURL):
        return PictureFault("unsupported_uri", f"{_shown(url)}: is no web address")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return PictureFault("s3_error", f"{_shown(url)}: the certificate is not valid for this host")
    return _Busy("s3_error", f"{_shown(url)}: the connection failed: {type(error).__name__}")


def _shown(url: str) -> str:
    return hidden(url.encode("ascii", "backslashreplace").decode())[:300]

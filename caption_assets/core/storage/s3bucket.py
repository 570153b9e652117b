"""One bucket as this process reaches it: its clients, its region, its pace, and the one loop that asks again."""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from obstore.store import S3Store

from caption_assets.config import BucketConfig
from caption_assets.core.storage import credentials
from caption_assets.core.storage.objects import ObjectError, Throttled
from caption_assets.core.storage.pacing import pace_of, pause
from caption_assets.core.storage.s3faults import RETRIED, S3Fault, as_error, fault_of

PATIENCE_S = 60.0
# A bucket that has not answered once is more likely misspelt than busy.
FIRST_PATIENCE_S = 15.0

T = TypeVar("T")
_DNS_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$")


class Access:
    """The two clients of one identity in one region: `boto` for all that changes or lists, `fast()` for reads."""

    def __init__(self, session: boto3.Session, settings: BucketConfig, bucket: str, region: str | None) -> None:
        self._session, self._settings, self._bucket = session, settings, bucket
        self.boto: Any = credentials.client(session, settings, region)
        self.region: str = self.boto.meta.region_name
        self._fast: tuple[Any, S3Store] | None = None

    def fast(self) -> S3Store:
        """An obstore client that signs with today's credentials; made anew when boto3 has renewed them."""
        signed_with = None if self._settings.anonymous else credentials.frozen(self._session)
        if self._fast is None or self._fast[0] != signed_with:
            self._fast = (signed_with, self._store(signed_with))
        return self._fast[1]

    def _store(self, signed_with: Any) -> S3Store:
        endpoint = self.boto.meta.endpoint_url
        virtual = not credentials.path_style(self.boto, self._settings) and bool(_DNS_NAME.match(self._bucket))
        if virtual:
            scheme, host = endpoint.split("://", 1)
            endpoint = f"{scheme}://{self._bucket}.{host}"
        config: dict[str, Any] = {"endpoint": endpoint, "region": self.region, "virtual_hosted_style_request": virtual}
        if self._settings.requester_pays:
            config["request_payer"] = True
        if signed_with is None and not self._settings.anonymous:
            raise ObjectError(
                f"s3://{self._bucket}: no credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "s3.profile or, for a public bucket, s3.anonymous"
            )
        if signed_with is None:
            config["skip_signature"] = True
        else:
            config |= {"access_key_id": signed_with.access_key, "secret_access_key": signed_with.secret_key}
            config |= {"token": signed_with.token} if signed_with.token else {}
        client: dict[str, Any] = {
            "allow_http": urlsplit(endpoint).scheme == "http",
            "connect_timeout": f"{credentials.CONNECT_TIMEOUT_S}s",
            "read_timeout": f"{credentials.READ_TIMEOUT_S}s",
            "timeout": "10m",
        }
        if bundle := credentials.ca_bundle(self._session):
            client["root_certificate"] = bundle
        return S3Store(self._bucket, config=config, client_options=client, retry_config={"max_retries": 0})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Request:
    """What is asked, for messages and for finding the right access."""

    what: str  # read, listed, written, deleted
    uri: str
    key: str

    @property
    def writes(self) -> bool:
        return self.what in ("written", "deleted")


class _Trial:
    """What has been tried for one request so far."""

    def __init__(self, patience: float, stop: threading.Event | None) -> None:
        self.patience, self.tries, self.moved, self.renewed = patience, 0, False, False
        self._started, self._stop = time.monotonic(), stop or threading.Event()

    def rest(self, seconds: float) -> bool:
        """Sleeps; False, at once, where the patience does not reach so far (the first try may always wait its turn)."""
        left = self.patience - (time.monotonic() - self._started)
        if seconds > left and (self.tries or math.isinf(seconds)):
            return False
        return not (self._stop.wait(seconds) if seconds else self._stop.is_set())


_SILENT = S3Fault("throttled", 0, "it has answered nothing for minutes; it is asked again every few seconds")


class Bucket:
    """One bucket: its region, who asks it for what with which credentials, and how fast. patience_s: so long is tried again."""

    def __init__(self, name: str, settings: BucketConfig, patience_s: float = PATIENCE_S) -> None:
        self.name, self.settings, self._patience_s = name, settings, patience_s
        self._lock = threading.Lock()
        self._region: str | None = None  # where it was found to be
        self._asked = False
        self._said: str | None = None  # its own word on that
        self._accesses: dict[tuple[str, str], Access] = {}
        self.conditional_puts: bool | None = None
        first = credentials.client(credentials.session(settings), settings, None)
        self.pace = pace_of(first.meta.endpoint_url, name)
        self.payer: dict[str, str] = {"RequestPayer": "requester"} if settings.requester_pays else {}

    def call(
        self,
        request: Request,
        attempt: Callable[[Access], T],
        patience_s: float | None = None,
        stop: threading.Event | None = None,
    ) -> T:
        """What `attempt` returns, asked again with growing pauses while the store is busy, broken or not to be reached.

        Raises what `as_error` makes of the fault, after `patience_s` at most (and the time the last attempt takes), or at
        once when `stop` is set.
        """
        trial = _Trial(self._patience_s if patience_s is None else patience_s, stop)
        fault = _SILENT
        while True:
            if not trial.rest(self.pace.delay()):
                raise self._error(fault, request, trial.tries)
            trial.tries += 1
            access = self.access(request)
            try:
                result = attempt(access)
            except Exception as error:
                found = fault_of(error)
                if found is None:
                    raise
                fault = found
            else:
                self.pace.answered()
                return result
            if fault.answered:
                self.pace.answered()
            else:
                self.pace.refused()
            if not self._again(fault, access, trial):
                raise self._error(fault, request, trial.tries)

    def _again(self, fault: S3Fault, access: Access, trial: _Trial) -> bool:
        """Whether asking once more may help; has rested by then."""
        if not trial.moved and fault.perhaps_elsewhere and self._follow(fault, access.region):
            trial.moved = True
            return True
        if fault.kind == "expired":
            trial.renewed, again = True, not trial.renewed
        else:
            again = fault.kind in RETRIED
        if fault.kind == "connection" and not self.pace.ever_answered:
            trial.patience = min(trial.patience, FIRST_PATIENCE_S)
        return again and trial.rest(pause(trial.tries))

    def access(self, request: Request) -> Access:
        """The clients for this request: one for the bucket or, with S3 Access Grants, one for each grant."""
        with self._lock:
            if not self.settings.access_grants:
                return self._access("", "", lambda: credentials.session(self.settings))
            permission = "READWRITE" if request.writes else "READ"
            address = f"{self.name}/{request.key}"
            for (prefix, may), access in self._accesses.items():
                if address.startswith(prefix) and may in (permission, "READWRITE"):
                    return access
            prefix, session = credentials.grant(self.settings, self.name, request.key, permission)
            return self._access(prefix, permission, lambda: session)

    def _access(self, prefix: str, permission: str, session: Callable[[], boto3.Session]) -> Access:
        if (prefix, permission) not in self._accesses:
            self._accesses[prefix, permission] = Access(session(), self.settings, self.name, self._region)
        return self._accesses[prefix, permission]

    def _follow(self, fault: S3Fault, tried: str) -> bool:
        """Whether asking again makes sense, since the bucket is in another region than the one that was tried."""
        with self._lock:
            region = fault.region or self._home()
            if region is None or region == tried:
                return False
            if region != self._region:
                self._region = region
                self._accesses.clear()
            return True

    def _home(self) -> str | None:
        """The region the bucket says it is in, asked for once; it says so to anyone."""
        if not self._asked:
            self._asked = True
            with contextlib.suppress(BotoCoreError, ObjectError):
                client = credentials.client(credentials.session(self.settings), self.settings, None)
                try:
                    answer = client.head_bucket(Bucket=self.name)
                except ClientError as error:
                    answer = error.response
                self._said = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("x-amz-bucket-region")
        return self._said

    def _error(self, fault: S3Fault, request: Request, tries: int) -> ObjectError:
        if fault.kind == "throttled" and fault.status == 0:
            return Throttled(f"{request.uri}: cannot be {request.what}: s3://{self.name}: {fault.code}")
        last = next(iter(self._accesses.values()), None)
        region, endpoint = (last.region, last.boto.meta.endpoint_url) if last else (self.settings.region or "unknown", "S3")
        return as_error(fault, request.what, request.uri, self.name, region, endpoint, tries)

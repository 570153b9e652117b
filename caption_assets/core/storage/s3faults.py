"""What a failed S3 request means: one small vocabulary for boto3's and obstore's errors, and the words people read.

The texts of both libraries quote requests; only the status and the code are taken from them, so no secret gets out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    ResponseStreamingError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)
from obstore.exceptions import BaseError as ObstoreError
from urllib3.exceptions import HTTPError as Urllib3Error

from caption_assets.core.hiding import hidden
from caption_assets.core.storage.objects import NotAFile, ObjectError, ObjectMissing, Throttled

Kind = Literal["throttled", "broken", "connection", "missing", "range", "precondition", "changed", "refused", "expired", "other"]
RETRIED = ("throttled", "broken", "connection", "expired")

_THROTTLED = {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "ServiceUnavailable", "TooManyRequests"}
_BROKEN = {"InternalError", "RequestTimeout", "ConditionalRequestConflict", "OperationAborted", "BadDigest"}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}
_REGION = {"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
_NO_OBJECT = {"NoSuchKey", "NoSuchBucket", "KeyTooLongError", "NoSuchVersion"}
NO_CREDENTIALS = "no credentials were found"
_HINTS = {
    NO_CREDENTIALS: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, s3.profile or, for a public bucket, s3.anonymous: true",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "InvalidAccessKeyId": "the access key is not known there",
    "RequestTimeTooSkewed": "this machine's clock is wrong",
    "InvalidObjectState": "the object is archived and must be restored first",
    "InvalidToken": "the session token is wrong",
    "ExpiredToken": "the session token has run out",
}
_STATUS = re.compile(r"status(?: code)?: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z.]{1,64})</Code>")


@dataclass(frozen=True)
class S3Fault:
    """status: of HTTP, 0 where there was no answer; code: S3's; region: where the bucket is, when the answer said so."""

    kind: Kind
    status: int
    code: str
    region: str | None = None

    @property
    def answered(self) -> bool:
        """Whether the store is alive and said something about this request."""
        return self.kind not in ("throttled", "broken", "connection")

    @property
    def perhaps_elsewhere(self) -> bool:
        """Whether the bucket may be in another region: some stores say so by refusing, and HEAD answers have no code."""
        return self.wrong_region or bool(self.region) or self.status == 403 or (self.status == 400 and not self.code)

    @property
    def wrong_region(self) -> bool:
        return self.status in (301, 307) or self.code in _REGION

    def __str__(self) -> str:
        words = " ".join(str(part) for part in (self.status, self.code) if part)
        return f"the connection failed{words and f' ({words})'}" if self.kind == "connection" else words


def fault_of(error: Exception) -> S3Fault | None:
    """None: not a fault of a request, a programming error."""
    if isinstance(error, ClientError):
        return _client_fault(error.response)
    if isinstance(error, NoCredentialsError):
        return S3Fault("refused", 0, NO_CREDENTIALS)
    if isinstance(error, ParamValidationError):
        return S3Fault("missing", 0, "not a key that S3 can have")
    if isinstance(error, (BotoConnectionError, HTTPClientError, IncompleteReadError, ResponseStreamingError, Urllib3Error)):
        return S3Fault("connection", 0, type(error).__name__)
    if isinstance(error, BotoCoreError):
        return S3Fault("other", 0, type(error).__name__)
    if isinstance(error, (ObstoreError, FileNotFoundError, PermissionError)):
        return _obstore_fault(error)
    if isinstance(error, UnicodeEncodeError):
        return S3Fault("missing", 0, "not a key that S3 can have")
    return S3Fault("connection", 0, type(error).__name__) if isinstance(error, OSError) else None


def _client_fault(response: dict[str, Any]) -> S3Fault:
    answer, error = response.get("ResponseMetadata", {}), response.get("Error", {})
    status, code = int(answer.get("HTTPStatusCode") or 0), str(error.get("Code", ""))
    region = answer.get("HTTPHeaders", {}).get("x-amz-bucket-region") or error.get("Region")
    return _fault(status, "" if code.isdigit() else code, region)


def _obstore_fault(error: Exception) -> S3Fault:
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status is None and "Received redirect without LOCATION" in text:
        return S3Fault("other", 301, "PermanentRedirect")
    if status is None and isinstance(error, FileNotFoundError):
        return S3Fault("missing", 404, "")
    return _fault(int(status[1]) if status else 0, code[1] if code else "")


def _fault(status: int, code: str, region: str | None = None) -> S3Fault:
    kind: Kind = "other"
    if code in _THROTTLED or status in (429, 503):
        kind = "throttled"
    elif code in _EXPIRED:
        kind = "expired"
    elif code in _BROKEN or status in (408, 500, 502, 504, 409):
        kind = "broken"
    elif status == 0:
        kind = "connection"
    elif status == 404 or code in _NO_OBJECT:
        kind = "missing"
    elif status == 416:
        kind = "range"
    elif status == 412:
        kind = "precondition"
    elif status in (401, 403):
        kind = "refused"
    return S3Fault(kind, status, code, region if status in (301, 307, 400) or code in _REGION else None)


def as_error(fault: S3Fault, what: str, uri: str, bucket: str, region: str, endpoint: str, tries: int) -> ObjectError:
    """The error people and the failed table get. `what`: read, listed, written, deleted."""
    often = f" ({tries} tries)" if tries > 1 else ""
    if fault.kind == "missing":
        gone = {"NoSuchBucket": f"the bucket {bucket} does not exist"}.get(fault.code, fault.code or "does not exist")
        return ObjectMissing(f"{uri}: {'does not exist' if fault.code == 'NoSuchKey' else gone}")
    if fault.kind == "throttled":
        return Throttled(f"{uri}: cannot be {what}: the store refuses requests to {bucket}: {fault}{often}")
    if fault.kind == "precondition":
        return ObjectError(f"{uri}: was changed while it was {what}")
    hint = _HINTS.get(fault.code, "")
    if fault.wrong_region:
        where = f"it is in {fault.region}" if fault.region else f"it is not in {region}"
        hint = f"the bucket {bucket}: {where}; set region in s3 or in s3.buckets.{bucket}"
    elif fault.kind == "connection":
        hint = f"{hidden(endpoint)} does not answer, breaks off or has no certificate that is trusted here"
    elif fault.kind == "refused":
        own = f"check the credentials, their rights on the bucket {bucket} and the s3 settings profile, role_arn, anonymous"
        return ObjectError(f"{uri}: access is refused: {fault}: {hint or own}")
    return ObjectError(f"{uri}: cannot be {what}: {fault}{': ' * bool(hint)}{hint}{often}")


def split(uri: str) -> tuple[str, str]:
    """Bucket and key, both literal. Raises NotAFile where no bucket is named."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not bucket:
        raise NotAFile(f"{uri!r}: names no bucket")
    return bucket, key

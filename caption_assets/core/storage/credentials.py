"""Who this program is towards S3. The only place that makes boto3 sessions and S3 clients, and that meets credentials.

Credentials come from where boto3 looks for them (environment, profile, instance role, …), from an assumed role or from
S3 Access Grants; each kind renews itself, so a job may take any time. Secrets appear in no message.
"""

from __future__ import annotations

import functools
import os
import threading
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, Credentials, DeferredRefreshableCredentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.utils import parse_timestamp

from caption_assets.config import BucketConfig
from caption_assets.core.storage.objects import ObjectError

CONNECT_TIMEOUT_S, READ_TIMEOUT_S, CONNECTIONS = 5, 30, 64
DEFAULT_REGION = "us-east-1"

# boto3 sessions are not thread-safe while they make clients or look for credentials.
_lock = threading.RLock()


def session(settings: BucketConfig) -> boto3.Session:
    """A boto3 session as `profile` and `role_arn` say. Raises ObjectError where the profile does not exist."""
    with _lock:
        return _session(settings.profile, settings.role_arn, settings.region)


@functools.cache
def _session(profile: str | None, role_arn: str | None, region: str | None) -> boto3.Session:
    try:
        own = _boto_session(profile)
        if region:
            own.set_config_variable("region", region)
        if role_arn:
            own._credentials = _role(own, role_arn, region)  # boto3 has no public way
        return boto3.Session(botocore_session=own)
    except BotoCoreError as error:
        raise ObjectError(f"the S3 settings cannot be used: {error}") from None


def _boto_session(profile: str | None) -> botocore.session.Session:
    own = botocore.session.Session(profile=profile)
    # Two thirds of the CPU time of a listing go into boto's own reading of times.
    own.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_timestamp)
    return own


def _timestamp(value: Any) -> datetime:
    try:
        found = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except (AttributeError, ValueError):
        return parse_timestamp(value)
    return found if found.tzinfo else parse_timestamp(value)


def _role(source: botocore.session.Session, role_arn: str, region: str | None) -> DeferredRefreshableCredentials:
    """The role's credentials, fetched when first needed and again before they run out."""
    asking = _boto_session(source.profile)

    def fetch() -> dict[str, Any]:
        own = asking.get_credentials()
        if own is None:
            raise ObjectError(f"no credentials to assume {role_arn} with: set AWS_ACCESS_KEY_ID or a profile")
        creator = functools.partial(asking.create_client, region_name=region or _region(asking))
        fetcher = AssumeRoleCredentialFetcher(creator, own, role_arn, extra_args={"RoleSessionName": "caption-assets"})
        try:
            return fetcher.fetch_credentials()
        except (ClientError, BotoCoreError) as error:
            raise ObjectError(f"the role {role_arn} cannot be assumed: {error_code(error)}") from None

    return DeferredRefreshableCredentials(refresh_using=fetch, method="assume-role")


def grant(settings: BucketConfig, bucket: str, key: str, permission: str) -> tuple[str, boto3.Session]:
    """S3 Access Grants: the prefix `bucket/…` that the grant covers, and a session with the grant's renewing credentials.

    `permission` is READ or READWRITE. The grant is looked for in the caller's own account.
    """
    caller = session(settings)
    target = f"s3://{bucket}/{key}"

    def fetch() -> dict[str, Any]:
        found = _data_access(caller, settings, target, permission)
        matched.append(found["MatchedGrantTarget"])
        own = found["Credentials"]
        return {
            "access_key": own["AccessKeyId"],
            "secret_key": own["SecretAccessKey"],
            "token": own["SessionToken"],
            "expiry_time": own["Expiration"].isoformat(),
        }

    matched: list[str] = []
    credentials = DeferredRefreshableCredentials(refresh_using=fetch, method="s3-access-grants")
    credentials.get_frozen_credentials()
    with _lock:
        own = _boto_session(settings.profile)
        own._credentials = credentials
        return matched[0].removeprefix("s3://").rstrip("*"), boto3.Session(botocore_session=own)


def _data_access(caller: boto3.Session, settings: BucketConfig, target: str, permission: str) -> dict[str, Any]:
    region = settings.region or _region(caller._session)
    try:
        with _lock:
            sts = caller.client("sts", region_name=region)
            control = caller.client("s3control", region_name=region)
        account = sts.get_caller_identity()["Account"]
        return control.get_data_access(AccountId=account, Target=target, Permission=permission, Privilege="Default")
    except (ClientError, BotoCoreError) as error:
        raise ObjectError(f"{target}: S3 Access Grants give no {permission} access: {error_code(error)}") from None


def frozen(of: boto3.Session) -> ReadOnlyCredentials | None:
    """The credentials to sign with now, renewed where they are about to run out; None where there are none."""
    with _lock:
        credentials: Credentials | None = of.get_credentials()
    return credentials.get_frozen_credentials() if credentials else None


def client(of: boto3.Session, settings: BucketConfig, region: str | None, attempts: int = 1) -> Any:
    """An S3 client that asks once, or so many times. Path-style where an endpoint is set, here or in the environment."""
    with _lock:
        made = _client(of, settings, region, "path" if settings.endpoint_url else "auto", attempts)
        if path_style(made, settings) and not settings.endpoint_url:
            made = _client(of, settings, region, "path", attempts)
        return made


@functools.cache
def _client(of: boto3.Session, settings: BucketConfig, region: str | None, addressing: str, attempts: int) -> Any:
    config = Config(
        signature_version=UNSIGNED if settings.anonymous else "s3v4",
        s3={"addressing_style": addressing},
        retries={"total_max_attempts": attempts},
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        max_pool_connections=CONNECTIONS,
        # Newer checksums are refused by many stores that speak S3; what is put carries Content-MD5.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        region = region or settings.region or _region(of._session)
        return of.client("s3", region_name=region, endpoint_url=settings.endpoint_url, config=config)
    except (BotoCoreError, ValueError) as error:
        raise ObjectError(f"the S3 settings cannot be used: {error}") from None


def path_style(client: Any, settings: BucketConfig) -> bool:
    """Whether buckets stand in the path of the client's addresses, not in their host name."""
    host = urlsplit(client.meta.endpoint_url).hostname or ""
    return bool(settings.endpoint_url) or not host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def ca_bundle(of: boto3.Session) -> bytes | None:
    """Certificates of a private authority that the environment or the profile names for S3."""
    path = of._session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()


def error_code(error: Exception) -> str:
    """What a boto error is, without its text, which may quote a request."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "unknown"))
    return type(error).__name__


def _region(of: Any) -> str:
    return of.get_config_variable("region") or DEFAULT_REGION

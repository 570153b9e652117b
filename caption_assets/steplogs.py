"""What steps print, kept in S3: whoever opens the UI reads it, on whichever host a run took place.

dagster-aws's S3 log manager, reached with the bucket's settings of caption_assets.yaml (profile, assumed role, access grants,
another endpoint) like everything else in S3. Named in dagster.yaml, which `caption-assets init` writes.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from dagster import Field, Noneable, StringSource
from dagster_aws.s3.compute_log_manager import S3ComputeLogManager

from caption_assets.config import BucketConfig
from caption_assets.core.storage.credentials import client, grant, session

ATTEMPTS = 3
TEXTS, SWITCHES = ("endpoint_url", "region", "profile", "role_arn"), ("access_grants",)


class S3StepLogs(S3ComputeLogManager):
    """`bucket`, `prefix`, and how the bucket is reached. A log that cannot be stored is an event of its run and fails nothing.

    `upload_interval`: seconds between uploads while a step runs. `local_dir`: where logs grow until then, a folder that only this
    user reads.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        local_dir: str | None = None,
        upload_interval: int | None = None,
        inst_data: Any = None,
        **reached: Any,
    ) -> None:
        settings = BucketConfig(**reached)
        super().__init__(
            bucket,
            local_dir or _private_folder(),
            inst_data,
            prefix=prefix,
            endpoint_url=settings.endpoint_url,
            region=settings.region or "us-east-1",
            upload_interval=upload_interval,
        )
        signer = grant(settings, bucket, f"{prefix}/", "READWRITE")[1] if settings.access_grants else session(settings)
        self._s3_session = client(signer, settings, None, ATTEMPTS)

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {
            "bucket": StringSource,
            "prefix": StringSource,
            "local_dir": Field(Noneable(StringSource), default_value=None),
            "upload_interval": Field(Noneable(int), default_value=None),
            **{name: Field(Noneable(StringSource), default_value=None) for name in TEXTS},
            **{name: Field(bool, default_value=False) for name in SWITCHES},
        }


def _private_folder() -> str:
    folder = Path(tempfile.gettempdir()) / f"caption_assets_logs_{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.is_symlink():
        raise PermissionError(f"{folder}: belongs to somebody else; set local_dir of compute_logs in dagster.yaml")
    return str(folder)

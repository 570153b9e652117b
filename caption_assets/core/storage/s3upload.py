"""A finished local file into S3: one put, or many parts that become one object at the end. Nothing is seen before that."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from caption_assets.core.storage.objects import ObjectError, ObjectMissing
from caption_assets.core.storage.s3bucket import Bucket, Request

PART_BYTES = 16 << 20
MOST_PARTS = 9_000
UPLOAD_THREADS = 4


def upload(bucket: Bucket, request: Request, path: Path) -> None:
    """Puts the file under the request's key. Memory: UPLOAD_THREADS parts. Parts of an upload that fails are removed."""
    size = os.stat(path).st_size
    address = {"Bucket": bucket.name, "Key": request.key, **bucket.payer}
    if size <= PART_BYTES:
        data = path.read_bytes()
        bucket.call(request, lambda access: access.boto.put_object(Body=data, ContentMD5=md5(data), **address))
        return
    part_bytes = max(PART_BYTES, -(-size // MOST_PARTS))
    upload_id = bucket.call(request, lambda access: access.boto.create_multipart_upload(**address))["UploadId"]
    address["UploadId"] = upload_id
    try:
        with ThreadPoolExecutor(UPLOAD_THREADS, thread_name_prefix="s3-upload") as pool:
            send = _sender(bucket, request, path, address, part_bytes)
            tags = list(pool.map(send, range(1, -(-size // part_bytes) + 1)))
        _complete(bucket, request, address, tags, size)
    except BaseException:
        with contextlib.suppress(ObjectError):
            bucket.call(request, lambda access: access.boto.abort_multipart_upload(**address), patience_s=10)
        raise


def _sender(
    bucket: Bucket, request: Request, path: Path, address: dict[str, Any], part_bytes: int
) -> Callable[[int], dict[str, Any]]:
    def send(number: int) -> dict[str, Any]:
        with open(path, "rb") as file:
            file.seek((number - 1) * part_bytes)
            data = file.read(part_bytes)
        part = {"PartNumber": number, "Body": data, "ContentMD5": md5(data), **address}
        sent = bucket.call(request, lambda access: access.boto.upload_part(**part))
        return {"PartNumber": number, "ETag": sent["ETag"]}

    return send


def _complete(bucket: Bucket, request: Request, address: dict[str, Any], tags: list[dict[str, Any]], size: int) -> None:
    parts = {"MultipartUpload": {"Parts": tags}}
    try:
        bucket.call(request, lambda access: access.boto.complete_multipart_upload(**parts, **address))
    except ObjectMissing:
        # The upload is unknown: completed already, where only the answer to the first request was lost.
        where = {"Bucket": bucket.name, "Key": request.key, **bucket.payer}
        if bucket.call(request, lambda access: access.boto.head_object(**where))["ContentLength"] != size:
            raise


def md5(data: bytes) -> str:
    """As the header Content-MD5 has it: every store checks it."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()

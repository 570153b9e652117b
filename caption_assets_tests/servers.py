"""Real S3 servers on free loopback ports, started once per test session.

`s3_server`: the JuiceFS gateway (MinIO's S3 layer), which ignores If-None-Match. `moto_server`: moto, which knows it, and STS.
While one of them is in use the environment holds its keys; `.config()` gives the S3Config that reaches it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from caption_assets.config import BucketConfig, S3Config
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.storage.credentials import client, session

ACCESS_KEY, SECRET_KEY = "test-access", "test-secret-key"


@dataclass
class S3Server:
    endpoint: str

    def config(self, **settings: Any) -> S3Config:
        return S3Config(endpoint_url=self.endpoint, region="us-east-1", **settings)

    def store(self, **settings: Any) -> ObjectStore:
        return ObjectStore(self.config(**settings))

    def client(self) -> Any:
        settings = BucketConfig(endpoint_url=self.endpoint, region="us-east-1")
        return client(session(settings), settings, None)

    def make_bucket(self, name: str | None = None) -> str:
        """A new bucket of this or a random name; returns its name."""
        name = name or f"test-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        return name


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def set_test_keys(patch: pytest.MonkeyPatch) -> None:
    """Keys for boto3 in the environment, and nothing there that leads out of this machine."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HTTP_PROXY", "HTTPS_PROXY"):
        patch.delenv(name, raising=False)
    patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    patch.setenv("AWS_CONFIG_FILE", os.devnull)
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.fixture(scope="session")
def s3_keys() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        set_test_keys(patch)
        yield


@pytest.fixture(scope="session")
def s3_server(s3_keys: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3_server(tmp_path_factory.mktemp("juicefs")) as server:
        yield server


@pytest.fixture(scope="session")
def moto_server(s3_keys: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    port = free_port()
    command = [_program("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with _serve(command, dict(os.environ), port, tmp_path_factory.mktemp("moto") / "moto.log") as server:
        yield server


@contextmanager
def running_s3_server(folder: Path) -> Iterator[S3Server]:
    """The JuiceFS gateway over files in `folder`."""
    meta, juicefs, port = f"sqlite3://{folder}/meta.db", _program("juicefs"), free_port()
    formatted = [juicefs, "format", meta, "tests", "--storage", "file", "--bucket", f"{folder}/blob/"]
    subprocess.run(formatted, check=True, capture_output=True)
    gateway = [juicefs, "gateway", meta, f"127.0.0.1:{port}", "--multi-buckets", "--keep-etag", "--no-usage-report"]
    gateway += ["--cache-dir", f"{folder}/cache"]
    environment = {**os.environ, "MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY}
    with _serve(gateway, environment, port, folder / "gateway.log") as server:
        yield server


def _program(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is missing: pip install 'caption-assets[test]'"
    return found


@contextmanager
def _serve(command: list[str], environment: dict[str, str], port: int, log: Path) -> Iterator[S3Server]:
    with open(log, "wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
    try:
        endpoint = f"http://127.0.0.1:{port}"
        _wait_until_it_answers(endpoint, server, log)
        yield S3Server(endpoint)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait_until_it_answers(endpoint: str, server: subprocess.Popen[bytes], log: Path) -> None:
    asking = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    deadline = time.monotonic() + 60
    while True:
        try:
            asking.list_buckets()
            return
        except Exception:
            assert server.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, f"{server.args}: no answer for 60 s"
            time.sleep(0.2)

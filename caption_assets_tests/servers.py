"""Real servers on free loopback ports, started once per test session.

`s3_server`: the JuiceFS gateway (MinIO's S3 layer), which ignores If-None-Match. `moto_server`: moto, which knows it, and STS.
While one of them is in use the environment holds its keys; `.config()` gives the S3Config that reaches it.
`postgres`: PostgreSQL; `.make_database()` gives the URL of a new, empty database.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import pytest

from caption_assets.config import BucketConfig, S3Config
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.storage.credentials import client, session

ACCESS_KEY, SECRET_KEY = "test-access", "test-secret-key"
POSTGRES_PROGRAMS = "/usr/lib/postgresql/*/bin"


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


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
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


@dataclass
class PostgresServer:
    """`user` may do everything; the password is asked for on every connection."""

    programs: Path
    host: str
    port: int
    user: str = "captions"
    password: str = "p@ss/word"

    def url(self, database: str = "postgres") -> str:
        """As $DAGSTER_POSTGRES_URL wants it."""
        return f"postgresql+psycopg2://{self.user}:{quote(self.password, safe='')}@{self.host}:{self.port}/{database}"

    def sql(self, statement: str, database: str = "postgres") -> str:
        """What psql prints: rows in lines, columns apart by |."""
        url = self.url(database).replace("+psycopg2", "", 1)
        command = [str(self.programs / "psql"), "-qtAX", "-v", "ON_ERROR_STOP=1", "-c", statement, url]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()

    def make_database(self) -> str:
        """The URL of a new database."""
        name = f"dagster_{uuid.uuid4().hex[:12]}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@contextmanager
def running_postgres(host: str = "127.0.0.1", max_connections: int = 200) -> Iterator[PostgresServer]:
    """A server on a free port of this address, without durability. As root it runs as an unprivileged user, as it demands."""
    found = sorted(Path("/").glob(f"{POSTGRES_PROGRAMS[1:]}/initdb"))
    if not found:
        installable = os.getuid() == 0 and shutil.which("apt-get")
        (pytest.fail if installable else pytest.skip)("PostgreSQL is missing: apt-get install postgresql")
    user = "postgres" if os.getuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as name:
        folder, server = Path(name), PostgresServer(found[-1].parent, host, free_port(host))
        (folder / "password").write_text(server.password)
        if user:
            shutil.chown(folder / "password", user)
            shutil.chown(folder, user)
        programs: dict[str, Any] = {"user": user, "cwd": folder}
        made = [f"{server.programs}/initdb", "-D", f"{folder}/data", "-U", server.user, "--pwfile", f"{folder}/password"]
        made += ["-A", "scram-sha-256", "-E", "UTF8", "--locale", "C", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, **programs)
        with open(folder / "data" / "pg_hba.conf", "a") as rules:
            rules.write("host all all all scram-sha-256\n")
        settings = {"listen_addresses": host, "port": server.port, "unix_socket_directories": folder, "fsync": "off"}
        settings |= {"max_connections": max_connections, "synchronous_commit": "off", "full_page_writes": "off"}
        command = [f"{server.programs}/postgres", "-D", f"{folder}/data"]
        command += [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        with open(folder / "log", "wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, **programs)
        try:
            _wait_until_ready(server, process, folder / "log")
            yield server
        finally:
            process.send_signal(signal.SIGINT)  # "fast shutdown": open connections are ended
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                process.wait()


def _wait_until_ready(server: PostgresServer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            server.sql("SELECT 1")
            return
        except subprocess.CalledProcessError:
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, "PostgreSQL: no answer for 60 s"
            time.sleep(0.1)

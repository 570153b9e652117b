"""What the user gets from S3 that is busy, broken, far away or forbidden."""

from __future__ import annotations

import io
import itertools
import os
import time
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import parse_qs, urlsplit

import obstore
import pytest
from botocore.awsrequest import AWSResponse, HeadersDict

from caption_assets.config import BucketConfig, S3Config
from caption_assets.core.objectstore import ObjectError, ObjectMissing, ObjectStore, Throttled
from caption_assets.core.storage import credentials, pacing, s3bucket
from caption_assets.core.storage.s3bucket import Request
from caption_assets.core.storage.s3store import S3Objects
from caption_assets_tests.servers import free_port
from caption_assets_tests.stubs.s3_server import FakeS3, Fault

pytestmark = pytest.mark.usefixtures("s3_keys")

PICTURES = {f"set/p{n}.jpg": os.urandom(2000 + n) for n in range(8)}
ODD = "set//p.jpg"  # read by the other client


def address(key: str) -> str:
    return f"s3://cases/{key}"


def test_busy_answers_are_waited_out_and_a_key_that_stays_busy_is_throttled() -> None:
    with FakeS3(PICTURES, [Fault(key="set/p5.jpg"), Fault(times=2)]) as s3:
        got = list(s3.store(patience_s=4).read_many([(address(key), 0, None) for key in PICTURES]))
        for (key, data), read in zip(PICTURES.items(), got, strict=True):
            if key == "set/p5.jpg":
                assert isinstance(read, Throttled)
                assert read.reason == "throttled"
                assert address(key) in str(read)
            else:
                assert read == data
        times = [a.at for a in s3.asked("GET", "set/p5.jpg")]
        waits = [b - a for a, b in itertools.pairwise(times)]
        assert len(waits) >= 3
        assert waits[-1] > waits[0]


def test_whoever_stops_reading_does_not_wait_for_a_busy_store() -> None:
    with FakeS3(PICTURES, [Fault(key="set/p1.jpg")]) as s3:
        store = s3.store()
        reads = store.read_many([(address("set/p0.jpg"), 0, None), (address("set/p1.jpg"), 0, None)])
        next(reads)
        reads.close()
        started = time.monotonic()
        store.of("s3://cases/")._pool.shutdown()
        assert time.monotonic() - started < 10


def test_a_throttled_key_ends_in_about_a_minute_with_default_settings() -> None:
    assert s3bucket.PATIENCE_S <= 60


@pytest.mark.parametrize("key", ["set/p0.jpg", ODD])
@pytest.mark.parametrize(
    ("status", "code"), [(503, "SlowDown"), (429, "TooManyRequests"), (500, "InternalError"), (502, ""), (504, "")]
)
def test_every_kind_of_request_is_asked_again(key: str, status: int, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FIRST_PAUSE_S", 0.02)
    faults = [Fault(op, "*", 1, status, code) for op in ("GET", "HEAD", "PUT", "LIST")]
    with FakeS3({key: b"abc"}, faults) as s3:
        store = s3.store()
        assert store.read(address(key)) == b"abc"
        assert store.head(address(key)).size == 3
        assert [info.uri for info in store.list("s3://cases/set/")] == [address(key)]
        store.put(address("new"), b"x")
        assert store.open(address("new")).read() == b"x"


def test_an_object_that_stays_broken_is_an_s3_error() -> None:
    with FakeS3(PICTURES, [Fault(status=500, code="InternalError")]) as s3:
        with pytest.raises(ObjectError, match=r"set/p1.jpg.*500 InternalError.*tries") as caught:
            s3.store(patience_s=1).read(address("set/p1.jpg"))
        assert caught.value.reason == "s3_error"


@pytest.mark.parametrize("key", ["set/p0.jpg", ODD])
def test_a_short_body_is_read_again(key: str) -> None:
    data = os.urandom(300_000)
    with FakeS3({key: data}, [Fault(cut=100_000, times=2)]) as s3:
        assert s3.store().read(address(key)) == data


def test_a_stream_goes_on_where_it_broke_off() -> None:
    data = os.urandom(5 << 20)
    with FakeS3({"t.tar": data}, [Fault(cut=1_500_000, times=3)]) as s3:
        with s3.store().open(address("t.tar"), 7) as stream:
            assert stream.read() == data[7:]
        asked = s3.asked("GET")
        assert [a.headers.get("range") for a in asked] == [
            f"bytes={n}-{'' if n == 7 else len(data) - 1}" for n in range(7, 5_000_000, 1_500_000)
        ]
        assert all("if-match" in a.headers for a in asked[1:])


def test_a_stream_that_breaks_off_without_a_byte_ends() -> None:
    with FakeS3({"t.tar": b"x" * 1000}, [Fault(cut=0)]) as s3, pytest.raises(ObjectError, match="break off"):
        s3.store().open(address("t.tar")).read()


def test_an_object_that_changes_while_it_is_streamed_is_an_error() -> None:
    data = os.urandom(1 << 20)
    changed = pytest.raises(ObjectError, match=r"t.tar: was changed while it was read")
    with FakeS3({"t.tar": data}, [Fault(cut=1000, times=1, then=data[::-1])]) as s3, changed:
        s3.store().open(address("t.tar")).read()


def test_ghosts_are_listed_and_missing() -> None:
    with FakeS3(PICTURES, ghosts=["set/p2.jpg"]) as s3:
        store = s3.store()
        assert len(list(store.list("s3://cases/set/"))) == 8
        with pytest.raises(ObjectMissing, match=r"s3://cases/set/p2.jpg: does not exist"):
            store.read(address("set/p2.jpg"))
        assert len(s3.asked("GET")) == 1, "what is not there is not asked for again"


def test_every_page_is_listed() -> None:
    keys = sorted([f"set/{n:04d}.txt" for n in range(1200)] + [f"set/z{n}+ é.jpg" for n in range(8)])
    with FakeS3(dict.fromkeys(keys, b"x")) as s3:
        store = s3.store()
        assert [info.uri for info in store.list("s3://cases/set/")] == [address(key) for key in keys]
        assert sum("continuation-token" in a.query for a in s3.asked("LIST")) == 1
        assert [info.uri for info in store.list("s3://cases/set/", start_after=address(keys[-2]))] == [address(keys[-1])]


@pytest.mark.parametrize("said", ["301", "400", "403"])
@pytest.mark.parametrize("key", ["set/p0.jpg", ODD])
def test_a_bucket_in_another_region_is_followed(said: str, key: str) -> None:
    with FakeS3({key: b"abc"}, region="eu-west-3", wrong_region=said) as s3:
        store = s3.store()
        assert store.read(address(key)) == b"abc"
        assert store.open(address(key)).read() == b"abc"
        assert store.head(address(key)).size == 3
        assert [a.status for a in s3.asked("GET")].count(200) == 2
        assert len(s3.asked("GET")) == 3, "once it is known, nobody asks elsewhere"


def test_a_bucket_that_cannot_be_followed_is_named_with_the_region() -> None:
    with FakeS3(PICTURES, [Fault(status=301, code="PermanentRedirect")]) as s3:
        with pytest.raises(ObjectError, match=r"bucket cases: it is not in us-east-1") as caught:
            s3.store().read(address("set/p0.jpg"))
        assert caught.value.reason == "s3_error"


def test_an_endpoint_that_does_not_answer_is_an_s3_error_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3bucket, "FIRST_PATIENCE_S", 0.5)
    store = ObjectStore(S3Config(endpoint_url=f"http://127.0.0.1:{free_port()}", region="us-east-1"))
    for ask in (store.read, store.head):
        with pytest.raises(ObjectError, match=r"the connection failed.*127.0.0.1.*does not answer") as caught:
            ask("s3://cases/x")
        assert caught.value.reason == "s3_error"


def test_a_connection_that_ends_without_an_answer_is_tried_again() -> None:
    with FakeS3({}, [Fault("PUT-ANSWER", times=1)]) as s3:
        s3.store().put(address("x"), b"x")
        assert s3.objects["x"] == b"x"


def test_put_new_knows_its_own_object_when_the_answer_was_lost() -> None:
    with FakeS3({}, [Fault("PUT-ANSWER", times=1)]) as s3:
        store = s3.store()
        assert store.put_new(address("gen-0"), b"mine")
        assert not store.put_new(address("gen-0"), b"other")
        assert s3.objects["gen-0"] == b"mine"


@pytest.mark.parametrize("conditional", ["honoured", "ignored", "refused"])
def test_put_new_is_write_once_whatever_the_store_knows(conditional: str) -> None:
    with FakeS3({}, conditional=conditional) as s3:
        store = s3.store()
        assert store.put_new(address("a"), b"1")
        assert not store.put_new(address("a"), b"2")
        assert s3.objects["a"] == b"1"
        assert store.of(address("a")).conditional_puts(address("a")) is (conditional == "honoured")


def test_an_endpoint_in_the_environment_is_used_like_one_in_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeS3({"x": b"abc"}) as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint.replace("127.0.0.1", "localhost"))
        credentials._client.cache_clear()
        store = ObjectStore(S3Config(region="us-east-1"))
        assert store.read(address("x")) == b"abc"
        assert store.head(address("x")).size == 3
    credentials._client.cache_clear()


@pytest.mark.parametrize("bucket", ["photos", "my.dotted.bucket", "UPPER_case"])
@pytest.mark.parametrize(
    "settings", [{"region": "us-east-1"}, {"region": "cn-north-1"}, {"endpoint_url": "https://s3.eu-west-3.amazonaws.com"}]
)
def test_both_clients_ask_at_the_same_address(settings: dict[str, str], bucket: str) -> None:
    key = "a b+%#?é/x.jpg"
    access = S3Objects(S3Config(**settings)).bucket(bucket).access(Request("read", "", key))
    ours = obstore.sign(access.fast(), "GET", key, timedelta(seconds=60))
    botos = access.boto.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key})
    assert ours.partition("?")[0] == botos.partition("?")[0]


def test_requester_pays_and_anonymous() -> None:
    with FakeS3(PICTURES | {ODD: b"x"}) as s3:
        store = s3.store(requester_pays=True)
        store.read(address("set/p0.jpg"))
        store.read(address(ODD))
        store.head(address("set/p0.jpg"))
        list(store.list("s3://cases/set/"))
        store.put(address("new"), b"")
        assert {a.headers.get("x-amz-request-payer") for a in s3.log} == {"requester"}
        s3.log.clear()
        store = s3.store(anonymous=True)
        store.read(address("set/p0.jpg"))
        store.head(address("set/p0.jpg"))
        assert not any("authorization" in a.headers for a in s3.log)


def test_without_credentials_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    credentials._session.cache_clear()
    with FakeS3(PICTURES) as s3:
        for ask in (s3.store().read, s3.store().head):
            with pytest.raises(ObjectError, match="no credentials"):
                ask(address("set/p0.jpg"))
    credentials._session.cache_clear()


def test_a_role_is_assumed_and_renewed_during_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeS3(PICTURES) as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3.endpoint)
        store = s3.store(role_arn="arn:aws:iam::123456789012:role/reader")
        for _ in range(3):  # the fake's credentials are always about to run out
            store.read(address("set/p0.jpg"))
            store.head(address("set/p0.jpg"))
        keys = [a.access_key for a in s3.log if a.op in ("GET", "HEAD")]
        assert len(keys) == 6
        assert all(key.startswith("ROLE") for key in keys)
        assert len(set(keys)) > 3


def test_a_role_that_cannot_be_assumed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeS3(PICTURES) as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{free_port()}")
        store = s3.store(role_arn="arn:aws:iam::123456789012:role/nobody")
        with pytest.raises(ObjectError, match="role/nobody"):
            store.read(address("set/p0.jpg"))


def test_access_grants_are_asked_for_once_per_grant() -> None:
    """No server speaks this protocol on loopback: the two requests are built by boto3 and answered before they are sent."""
    asked = []

    def answer(request: Any, **_: Any) -> AWSResponse:
        url = urlsplit(request.url)
        if "dataaccess" not in url.path:
            body = "<Account>123456789012</Account>".join(("<GetCallerIdentityResult>", "</GetCallerIdentityResult>"))
            body = f"<GetCallerIdentityResponse>{body}</GetCallerIdentityResponse>"
        else:
            query = {k: v[0] for k, v in parse_qs(url.query).items()}
            asked.append((url.hostname, query["target"], query["permission"], query["privilege"]))
            ends = (datetime.now(timezone.utc) + timedelta(hours=1)).isoformat()
            own = f"<AccessKeyId>GRANT-{query['permission']}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
            own += f"<SessionToken>t</SessionToken><Expiration>{ends}</Expiration>"
            body = f"<GetDataAccessResult><Credentials>{own}</Credentials>"
            body += "<MatchedGrantTarget>s3://cases/set/*</MatchedGrantTarget></GetDataAccessResult>"
        raw = io.BytesIO(body.encode())
        raw.stream = lambda: [raw.read()]  # type: ignore[attr-defined]
        return AWSResponse(request.url, 200, HeadersDict({}), raw)

    with FakeS3(PICTURES) as s3:
        events = credentials.session(BucketConfig(region="us-east-1")).events
        for service in ("sts", "s3-control"):
            events.register(f"before-send.{service}", answer)
        store = s3.store(access_grants=True)
        for key in PICTURES:
            store.read(address(key))
        list(store.list("s3://cases/set/"))
        control = "123456789012.s3-control.us-east-1.amazonaws.com"
        assert asked == [(control, "s3://cases/set/p0.jpg", "READ", "Default")]
        assert {a.access_key for a in s3.log} == {"GRANT-READ"}
        store.put(address("set/new"), b"")
        assert asked[1:] == [(control, "s3://cases/set/new", "READWRITE", "Default")]
        assert s3.asked("PUT")[0].access_key == "GRANT-READWRITE"
        credentials._session.cache_clear()


def test_secrets_are_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "hush-token")
    credentials._session.cache_clear()
    for fault in (Fault(status=403, code="SignatureDoesNotMatch"), Fault(status=503), Fault(status=400, code="ExpiredToken")):
        with FakeS3(PICTURES, [fault]) as s3, pytest.raises(ObjectError) as caught:
            s3.store(patience_s=0.5).read(address("set/p0.jpg"))
        assert "hush" not in str(caught.value)
        assert "test-access" not in str(caught.value)
    credentials._session.cache_clear()

"""Where a catalog may point: what is refused before anything is read, and that nothing outside is ever read."""

import os
from pathlib import Path

import pytest

from caption_assets.core.faults import PictureFault
from caption_assets.core.sources.addresses import AddressRules
from caption_assets_tests.core.sources.sourcekit import collect, picture, sha256, spec, write


def reason(rules: AddressRules, text: str, catalog: str) -> str | tuple[str, ...]:
    try:
        return rules.resolve(text, catalog).uris
    except PictureFault as error:
        return error.fault.reason


def test_local_catalogs_stay_within_the_source_and_the_allowed_folders(tmp_path: Path) -> None:
    secret, allowed = write(tmp_path / "secret", {"s.jpg": picture(0)}), write(tmp_path / "allowed", {"a.jpg": picture(1)})
    source = write(tmp_path / "in", {"images/p.jpg": picture(2), "cats/c.jsonl": ""})
    (source / "link.jpg").symlink_to(secret / "s.jpg")
    (source / "folder").symlink_to(secret)
    (source / "to_allowed").symlink_to(allowed)
    os.symlink(bytes(secret), os.fsencode(source) + b"/odd\xff")
    texts = {
        "../images/p.jpg": None,
        f"{source}/images/p.jpg": None,
        "images/p.jpg": None,
        f"{allowed}/a.jpg": None,
        "../to_allowed/a.jpg": None,
        f"{source}/../allowed/a.jpg": None,
        "../../secret/s.jpg": "forbidden_address",
        "../link.jpg": "forbidden_address",
        "../folder/s.jpg": "forbidden_address",
        "../odd\\udcff/s.jpg": "forbidden_address",
        "../images/../../secret/s.jpg": "forbidden_address",
        f"{secret}/s.jpg": "forbidden_address",
        "/etc/passwd": "forbidden_address",
        "/proc/self/environ": "forbidden_address",
        f"{allowed}x/a.jpg": "forbidden_address",
        "~/x.jpg": "missing_image",
        "s3://other/key.jpg": "forbidden_address",
        "http://example.com/x.jpg": "forbidden_address",
        "HTTPS://example.com/x.jpg": "forbidden_address",
        "file:///etc/passwd": "unsupported_uri",
        "FILE:/etc/passwd": "unsupported_uri",
        "ftp://host/x.jpg": "unsupported_uri",
        "data:image/png;base64,AAAA": "unsupported_uri",
        "hf://datasets/a/b/x.jpg": "forbidden_address",
    }
    write(source, {"cats/c.jsonl": [{"uri": text} for text in texts]})
    got = collect(source, tmp_path / "store", images={"local_roots": [str(allowed)]})
    assert dict(zip(texts, (got.reasons.get(key) for key in got.rows), strict=True)) == texts
    assert sha256(picture(0)) not in got.good.values()


def test_relative_texts_count_from_the_catalog_then_from_the_root(tmp_path: Path) -> None:
    write(
        tmp_path / "in",
        {
            "data/x.jpg": picture(0),
            "x.jpg": picture(1),
            "y.jpg": picture(2),
            "data/c.jsonl": [{"uri": "x.jpg"}, {"uri": "y.jpg"}],
        },
    )
    got = collect(tmp_path / "in", tmp_path / "store")
    assert got.good == {"data/c.jsonl#1": sha256(picture(0)), "data/c.jsonl#2": sha256(picture(2))}


def test_catalogs_in_a_store() -> None:
    rules = AddressRules(spec("s3://mine/sets/", images={"s3_buckets": ["other"], "local_roots": ["/data"]}))
    catalog = "s3://mine/sets/a/c.jsonl"
    wanted = {
        "x.jpg": ("s3://mine/sets/a/x.jpg", "s3://mine/sets/x.jpg"),
        "a b+%20#?.jpg": ("s3://mine/sets/a/a b+%20#?.jpg", "s3://mine/sets/a b+%20#?.jpg"),
        "x//y.jpg": ("s3://mine/sets/a/x//y.jpg", "s3://mine/sets/x//y.jpg"),
        "../x.jpg": ("s3://mine/sets/x.jpg", "s3://mine/x.jpg"),
        "s3://mine/elsewhere.jpg": ("s3://mine/elsewhere.jpg",),
        "s3://other/k//..//x.jpg": ("s3://other/k//..//x.jpg",),
        "S3://other/k.jpg": ("s3://other/k.jpg",),
        "s3://third/k.jpg": "forbidden_address",
        "s3://mine.evil/k.jpg": "forbidden_address",
        "s3://mine": "not_a_file",
        "s3://mine/folder/": "not_a_file",
        "../../../x.jpg": "forbidden_address",
        "/data/x.jpg": "forbidden_address",
        "/etc/passwd": "forbidden_address",
        "http://example.com/x": "forbidden_address",
    }
    assert {text: reason(rules, text, catalog) for text in wanted} == wanted


def test_http_only_where_it_is_allowed() -> None:
    address = AddressRules(spec("/in/", images={"http": True})).resolve("https://example.com/x.jpg", "/in/c.jsonl")
    assert (address.kind, address.uris) == ("http", ("https://example.com/x.jpg",))


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/x.jpg", "http://169.254.169.254/latest/meta-data", "http://localhost:9/x", "http://[::1]/"]
)
def test_http_never_reaches_private_addresses(tmp_path: Path, url: str) -> None:
    write(tmp_path / "in", {"c.jsonl": [{"uri": url}, {"uri": "ok.jpg"}, {"uri": url}], "ok.jpg": picture(1)})
    got = collect(tmp_path / "in", tmp_path / "store", images={"http": True})
    assert got.reasons == {"c.jsonl#1": "forbidden_address", "c.jsonl#3": "forbidden_address"} and len(got.good) == 1

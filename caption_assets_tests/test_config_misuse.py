"""Configs that YAML and the types would let pass, and that would go wrong later or mean something else."""

import pytest

from caption_assets.configfile import load_config
from caption_assets_tests.test_config import GOOD, refused, write


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD + "    shard_size: 10\n    shard_size: 20\n", ["line 8", "'shard_size'", "line 7"]),
        (GOOD + "store: ./other\n", ["'store'", "keep one"]),
        ("store: &a [*a]\n", ["holds itself"]),
        ("store: " + "[" * 5000, ["too deep"]),
        (GOOD + "    shard_size: yes\n", ["shard_size", "must be a number", "True"]),
        (GOOD + "    sampling: {temperature: on}\n", ["temperature", "must be a number"]),
        (GOOD + "    sampling: {seed: 99999999999999999999}\n", ["sampling.seed", "9223372036854775807"]),
        (GOOD + "    filters: {min_chars: 50, max_chars: 10}\n", ["min_chars (50)", "max_chars (10)"]),
        (GOOD + "    checks: {coverage_warn: 0.5}\n", ["coverage_error (0.9)", "coverage_warn (0.5)"]),
        (GOOD + "    filters: {language: english}\n", ["filters.language", "'english'"]),
        (GOOD.replace("Describe the picture.", "'  '"), ["prompts.0.text"]),
        (GOOD.replace("photos\n", "a" * 300 + "\n", 1), ["datasets.0.name", "100 at most"]),
    ],
)
def test_values_that_mean_something_else(tmp_path, text, words):
    said = refused(tmp_path, text)
    for word in (*words, "caption_assets.yaml"):
        assert word in said


@pytest.mark.parametrize(
    ("store", "source", "words"),
    [
        ("''", "./photos", ["store", "is empty"]),
        ("./store", "''", ["source.0", "is empty"]),
        ("${EMPTY}", "./photos", ["store", "is empty"]),
        ("http://host/store", "./photos", ["store", "http:// is not known here", "s3://"]),
        ("file:///store", "./photos", ["store", "file:// is not known here", "local path"]),
        ("s3://", "./photos", ["store", "names nothing behind s3://"]),
        ('"a\\0b"', "./photos", ["store", "no file name has"]),
        ("./store", '"a\\ud800b"', ["source.0", "no file name has"]),
        ("./photos", "./photos/", ["photos", "where the results go", "store"]),
        ("./store", "./store/photos/merged", ["where the results go"]),
        ("s3://bucket/a/", "s3://bucket/a", ["where the results go"]),
    ],
)
def test_places_that_are_none(tmp_path, monkeypatch, store, source, words):
    monkeypatch.setenv("EMPTY", "")
    said = refused(tmp_path, GOOD.replace("./store", store).replace("./photos/", source))
    for word in words:
        assert word in said


@pytest.mark.parametrize("output", ["b.text", "b!r", "b:>10", "B"])
def test_an_output_that_no_prompt_has_is_never_an_empty_text(tmp_path, output):
    prompts = f"[{{name: b, text: x}}, {{name: a, text: 'see {{output.{output}}}'}}]"
    assert f"{{output.{output}}}" in refused(tmp_path, GOOD.replace("[{text: Describe the picture.}]", prompts))


@pytest.mark.parametrize(
    "key",
    [
        "api_key_env: sk-verysecret",
        "endpoints: ['http://me:verysecret@host/v1?k=verysecret']",
        "endpoints: ['me:verysecret@host/v1']",
    ],
)
def test_a_key_or_password_in_the_config_is_not_repeated(tmp_path, key):
    for text in (GOOD + f"engine: {{{key}}}\n", GOOD + f"    engine: {{{key}}}\n"):
        said = refused(tmp_path, text)
        assert key.split(":")[0] in said and "verysecret" not in said


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("./store", "s3://me:verysecret@bucket/x"),
        ("./photos/", "s3://verysecret@bucket/x/"),
        ("./photos/", "http://me:verysecret@host/x/"),
        ("store: ./store", "store: ./store\ns3: {endpoint_url: 'http://me:verysecret@host'}"),
        ("store: ./store", "store: ./store\ns3: {buckets: {b: {endpoint_url: 'http://host?k=verysecret'}}}"),
        ("store: ./store", "store: ./store\nplace: 'http://me:verysecret@host'"),
        ("store: ./store", "store: [http://me:verysecret@host"),
    ],
)
def test_no_address_holds_a_password(tmp_path, old, new):
    assert old in GOOD
    assert "verysecret" not in refused(tmp_path, GOOD.replace(old, new))


def test_one_endpoint_written_twice_is_one(tmp_path):
    config = load_config(write(tmp_path, GOOD + "engine: {kind: openai, endpoints: ['http://a/v1', 'http://a/v1/']}\n"))
    assert config.engine.endpoints == ["http://a/v1"]

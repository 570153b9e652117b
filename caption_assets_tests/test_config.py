"""What a user reads when the config is wrong, and what a right one means."""

import json
from pathlib import Path

import pytest

from caption_assets.configerrors import ConfigError
from caption_assets.configfile import CONFIG_ENV, json_schema, load_config

GOOD = """
store: ./store
datasets:
  - name: photos
    source: ./photos/
    prompts: [{text: Describe the picture.}]
"""


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "caption_assets.yaml"
    file.write_text(text)
    return file


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as error:
        load_config(write(tmp_path, text))
    return str(error.value)


def test_relative_places_count_from_the_file(tmp_path):
    config = load_config(write(tmp_path, GOOD))
    assert config.store == f"{tmp_path}/store"
    assert config.datasets[0].source == [f"{tmp_path}/photos/"]
    assert config.datasets[0].grid.cell_size == 1024 and config.datasets[0].prompts[0].name == "caption"


def test_no_file_means_no_datasets_but_a_named_one_must_exist(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(CONFIG_ENV, raising=False)
    assert load_config().datasets == []
    monkeypatch.setenv(CONFIG_ENV, str(tmp_path / "gone.yaml"))
    with pytest.raises(ConfigError, match=r"gone.yaml: no such config file.*caption-assets init"):
        load_config()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("shard_size: many", ["datasets.0.shard_size", "'many'", "integer"]),
        ("shard_size: 0", ["datasets.0.shard_size", "greater than or equal to 1", "0"]),
        ("fromat: auto", ["datasets.0.fromat", "unknown key"]),
        ("format: zip", ["datasets.0.format", "'webdataset'", "'jsonl'", "'parquet'", "'images'", "'zip'"]),
        ("grid: {rows: 9}", ["datasets.0.grid.rows", "less than or equal to 8", "9"]),
        ("grid: {format: gif}", ["datasets.0.grid.format", "'webp'", "'gif'"]),
        ("exports: [avi]", ["datasets.0.exports.0", "'webdataset'", "'avi'"]),
        ("engine: {kind: openai}", ["endpoints", "http://127.0.0.1:8000/v1"]),
        ("engine: {server_args: {port: 1}}", ["server_args", "port", "set by this program"]),
        ("engine: {server_args: {--api-key: x}}", ["server_args", "--api-key"]),
        ("engine: {kind: openai, endpoints: ['ftp://x']}", ["endpoints", "ftp://x", "http(s)"]),
        ("engine: {kind: openai, endpoints: ['http://u:p@h/v1']}", ["endpoints", "without user or password"]),
        ("sampling: {temperature: 3}", ["datasets.0.sampling.temperature", "less than or equal to 2", "3"]),
    ],
)
def test_errors_name_the_key_the_value_and_what_is_allowed(tmp_path, change, words):
    said = refused(tmp_path, GOOD + f"    {change}\n")
    assert "caption_assets.yaml" in said
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ("[{name: uri, text: x}]", ["prompts.0.name", "another column"]),
        ("[{name: Caption, text: x}]", ["prompts.0.name", "lower-case"]),
        ("[{name: a_reason, text: x}]", ["prompts.0.name"]),
        ("[{name: a, text: x}, {name: a, text: y}]", ["'a' is used twice"]),
        ("[{name: a, text: 'see {output.b}'}, {name: b, text: y}]", ["{output.b}", "stands before"]),
        ("[{name: a, text: x, sampling: {temprature: 1}}]", ["prompts.0.sampling.temprature", "unknown key"]),
        ("[]", ["prompts"]),
    ],
)
def test_prompts_are_checked(tmp_path, prompts, words):
    said = refused(tmp_path, GOOD.replace("[{text: Describe the picture.}]", prompts))
    for word in words:
        assert word in said


def test_dataset_names_are_unique_and_plain(tmp_path):
    assert "used twice" in refused(tmp_path, GOOD + GOOD.split("datasets:\n")[1])
    assert "datasets.0.name" in refused(tmp_path, GOOD.replace("photos\n", "../photos\n", 1))


def test_variables_come_from_the_environment_and_cannot_change_the_structure(tmp_path, monkeypatch):
    monkeypatch.setenv("PHOTOS", "/data/x\n    shard_size: 3")
    config = load_config(write(tmp_path, GOOD.replace("./photos/", "${PHOTOS}")))
    assert config.datasets[0].shard_size == 100_000 and config.datasets[0].source[0].startswith("/data/x")
    said = refused(tmp_path, GOOD.replace("./photos/", "${NOT_SET_ANYWHERE}"))
    assert "datasets.0.source" in said and "NOT_SET_ANYWHERE" in said


@pytest.mark.parametrize("text", ["a: [", "- a", "\x00", "datasets: 3"])
def test_files_that_are_no_config_give_one_message(tmp_path, text):
    assert "caption_assets.yaml" in refused(tmp_path, text)


def test_overrides_of_engine_sampling_and_filters(tmp_path):
    text = GOOD + "    engine: {concurrency: 7}\n    sampling: {seed: 5}\nengine: {model: demo, concurrency: 3}\n"
    config = load_config(write(tmp_path, text))
    dataset = config.datasets[0]
    assert (config.engine_of(dataset).model, config.engine_of(dataset).concurrency) == ("demo", 7)
    assert dataset.sampling_of(dataset.prompts[0]).seed == 5


def test_bucket_settings_lie_over_the_general_ones(tmp_path):
    text = GOOD + "s3: {region: eu-west-1, profile: team, buckets: {other: {region: us-east-1, anonymous: true}}}\n"
    s3 = load_config(write(tmp_path, text)).s3
    other = s3.for_bucket("other")
    assert (other.region, other.profile, other.anonymous) == ("us-east-1", "team", True)
    assert s3.for_bucket("mine").region == "eu-west-1"


def test_the_schema_for_editors_takes_a_source_as_text_or_list():
    schema = json_schema()
    source = schema["$defs"]["DatasetConfig"]["properties"]["source"]
    assert {"type": "string"} in source["anyOf"]
    json.dumps(schema)

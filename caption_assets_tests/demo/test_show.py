"""`demo.show` says what the store has, beside the truth, and fails when the two disagree."""

import dataclasses
import json

import pyarrow as pa
import pytest

from caption_assets.configfile import load_config
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectStore
from caption_assets.core.tables import RecordStream, write_parquet
from caption_assets.demo.collection import make_collection
from caption_assets.demo.show import main


@pytest.fixture
def demo(tmp_path):
    return tmp_path, make_collection(tmp_path, tars=1, per_tar=4, catalog_rows=4, folder_images=3)


def publish(folder, truth, said=None):
    """The columns of merged and failed that are shown, as the merge publishes them; said: captions other than the true ones."""
    config, said = load_config(folder / "caption_assets.yaml"), said or {}
    for dataset in {t.dataset for t in truth}:
        layout = Layout(config.store, dataset)
        rows = [t for t in truth if t.dataset == dataset]
        merged = [{"record_id": t.record_id, "caption": said.get(t.record_id, t.caption)} for t in rows if t.caption]
        failed = [{"record_id": t.record_id, "reason": t.reason} for t in rows if t.reason]
        for uri, found, column in ((layout.merged("s-0"), merged, "caption"), (layout.failed("s-0"), failed, "reason")):
            schema = pa.schema([("record_id", "string"), (column, "string")])
            write_parquet(ObjectStore(), uri, RecordStream(schema, iter([pa.RecordBatch.from_pylist(found, schema)])))


def test_a_true_result_is_counted_and_success(demo, capsys):
    folder, truth = demo
    publish(folder, truth)
    assert main([str(folder)]) == 0
    out = capsys.readouterr().out
    assert "shapes_tars/s-0: 5 captioned, 0 failed" in out and "shapes_catalog/s-0: 5 captioned, 3 failed" in out
    assert "true captions: 14 of 14; right reasons: 5 of 5" in out
    assert f"{folder}/store/shapes_tars" in out and "dagster dev" in out


def test_captions_in_each_others_place_are_a_failure(demo, capsys):
    folder, truth = demo
    tars = [t for t in truth if t.dataset == "shapes_tars"]
    turned = {a.record_id: b.caption for a, b in zip(tars, tars[1:] + tars[:1], strict=True)}
    publish(folder, truth, turned)
    assert main([str(folder)]) == 1
    assert f"(expected: {tars[1].caption})" in capsys.readouterr().out


def test_a_missing_record_is_a_failure(demo):
    folder, truth = demo
    publish(folder, truth[:-1])
    assert main([str(folder)]) == 1


def test_another_reason_is_a_failure(demo):
    folder, truth = demo
    publish(folder, [dataclasses.replace(t, reason="timeout") if t.reason else t for t in truth])
    assert main([str(folder)]) == 1


def test_control_codes_of_a_model_do_not_reach_the_terminal(demo, capsys):
    folder, truth = demo
    publish(folder, truth, {truth[0].record_id: "a red \x1b[2Jcircle"})
    main([str(folder)])
    assert "\x1b" not in capsys.readouterr().out


def test_a_folder_without_the_demo_is_a_usage_error(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "caption_assets.yaml" in capsys.readouterr().err


def test_truth_lines_are_plain_json(demo):
    folder, truth = demo
    assert len((folder / "truth.jsonl").read_text().splitlines()) == len(truth)
    assert set(json.loads((folder / "truth.jsonl").read_text().splitlines()[0])) == {"dataset", "record_id", "caption", "reason"}

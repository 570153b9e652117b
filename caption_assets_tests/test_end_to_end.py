"""The whole way with a real vision-language model in real vLLM: captions are true and stand at the right picture."""

import json
import os
import random
import shutil
import signal
import time
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from caption_assets.demo.collection import make_collection
from caption_assets_tests.project import Project, wait_until
from caption_assets_tests.vllm_fixtures import DEMO_ENGINE

SEED = 20_261_130
DATASETS = ("shapes_tars", "shapes_catalog", "shapes_folder")
COLOURS = ("red", "green", "blue", "yellow", "orange", "purple", "cyan", "pink")


def collection(folder, **sizes):
    """The demo's collection of another seed, asked at the shared server."""
    truth = make_collection(folder, SEED, **sizes)
    config = yaml.safe_load((folder / "caption_assets.yaml").read_text())
    config["engine"] = DEMO_ENGINE
    project = Project(folder, config)
    project.write()
    return project, truth


def told(project):
    """(dataset, record_id) → caption, or [reason]."""
    found = {}
    for dataset in DATASETS:
        merged, failed = project.rows("merged", dataset), project.rows("failed", dataset)
        assert not merged.keys() & failed.keys()
        found |= {(dataset, key): row["caption"] for key, row in merged.items()}
        found |= {(dataset, key): f"[{row['reason']}]" for key, row in failed.items()}
    return found


def expected(truth):
    return {(entry.dataset, entry.record_id): entry.caption or f"[{entry.reason}]" for entry in truth}


def colours(caption):
    """(colour, background) of a caption of the demo's."""
    words = caption.split()
    return next((w for w in words if w in COLOURS), None), words[-2]


@pytest.fixture(scope="module")
def captioned(tmp_path_factory, shared_vllm, vllm_state):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPTION_ASSETS_STATE", str(vllm_state))
        project, truth = collection(tmp_path_factory.mktemp("shapes"), per_tar=48, catalog_rows=48, folder_images=32)
        project.output = project.command("run")
        yield project, truth


def test_captions_are_true_in_every_cell(captioned):
    project, truth = captioned
    found, wanted = told(project), expected(truth)
    assert found.keys() == wanted.keys()
    pictures = {key: caption for key, caption in wanted.items() if not caption.startswith("[")}
    assert len(pictures) >= 200
    assert {k: v for k, v in found.items() if k not in pictures} == {k: v for k, v in wanted.items() if k not in pictures}
    wrong = {key: (found[key], caption) for key, caption in pictures.items() if found[key] != caption}
    assert all(colours(found[key]) == colours(caption) for key, caption in pictures.items()), wrong
    assert len(wrong) <= 0.02 * len(pictures), wrong


def test_grids_were_asked_as_grids_and_what_they_gave_is_told(captioned):
    project, _ = captioned
    rows = [row for dataset in DATASETS[:2] for row in project.rows("merged", dataset).values()]
    assert Counter(row["slot"] for row in rows if row["grid_id"]).keys() == {1, 2, 3, 4}
    for row in rows:
        info = row["caption_info"]
        assert info["revision"].startswith("sha256-") and info["finish_reason"] == "stop" and info["completion_tokens"] > 0
    for row in project.rows("merged", "shapes_catalog").values():
        assert row["title"], "the second prompt is asked with what the first one got"


def test_a_permuted_mapping_would_be_noticed(captioned, tmp_path):
    """The truth test can fail: with cells joined to other records than they show, hardly a caption is right."""
    project, truth = captioned
    copy = Project(tmp_path / "copy", {**project.config, "datasets": [dict(d) for d in project.config["datasets"]]})
    shutil.copytree(project.folder, copy.folder, ignore=shutil.ignore_patterns(".dagster_home"))
    copy.write(source=f"{project.folder}/sources/tars/")
    for file in (copy.store / "shapes_tars" / "captions").rglob("*.parquet"):
        if not file.parent.name.startswith("_"):
            table = pq.read_table(file)
            turned = [ids[1:] + ids[:1] for ids in table["record_ids"].to_pylist()]
            column = pa.array(turned, table.schema.field("record_ids").type)
            pq.write_table(table.set_column(table.schema.get_field_index("record_ids"), "record_ids", column), file)
    shutil.rmtree(copy.store / "shapes_tars" / "merged")
    copy.command("run", "shapes_tars")
    merged, wanted = copy.rows("merged", "shapes_tars"), expected(truth)
    right = sum(row["caption"] == wanted["shapes_tars", key] for key, row in merged.items())
    assert right < len(merged) / 4


@pytest.mark.long
def test_five_kills_change_nothing(captioned, tmp_path):
    """kill -9 of the run at random moments: the same records, split, reasons and colours as without."""
    undisturbed, _ = captioned
    project, _ = collection(tmp_path / "killed", per_tar=48, catalog_rows=48, folder_images=32)
    chance = random.Random(5)
    for _ in range(5):
        process = project.start("run")
        wait_until(lambda: (project.store / "shapes_tars" / "manifest").exists(), 120)
        time.sleep(chance.uniform(0.5, 12))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    project.command("run")
    ours, theirs = told(project), told(undisturbed)
    assert ours.keys() == theirs.keys()
    for key, caption in theirs.items():
        assert ours[key].startswith("[") == caption.startswith("[")
        assert (ours[key] == caption) if caption.startswith("[") else colours(ours[key]) == colours(caption)
    status = json.loads(project.command("status", "--json"))
    assert {shard["status"] for dataset in status["datasets"] for shard in dataset["shards"]} == {"done"}

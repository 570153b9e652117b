"""What people see in the UI of one small shard, and what they can start there: names, checks, jobs and schedules."""

import logging
from datetime import datetime, timezone
from pathlib import Path

import dagster as dg
import pytest

from caption_assets.config import Config
from caption_assets.configfile import load_config
from caption_assets.definitions import build
from caption_assets.partitions import CONFIG_TAG, Dataset
from caption_assets.resources.store import StoreResource
from caption_assets.schedules import NIGHTLY_SHARDS, nightly
from caption_assets_tests.project import make_project
from caption_assets_tests.stubs.openai_server import StubServer

SHARD = "shard-00000"
FIGURES = {
    "captions": {
        "records", "requests", "prompt_tokens", "completion_tokens", "engine_seconds", "images_per_s", "feed_wait_s",
        "resumed_records",
    },
    "merged": {
        "records", "captioned", "failed", "coverage", "requests", "prompt_tokens", "completion_tokens", "engine_seconds",
        "gpu_hours_per_million",
    },
}  # fmt: skip
CHECKS = {
    "plan_unchanged": "shard_plan", "grid_integrity": "concat_grids", "records_accounted": "merged", "caption_coverage": "merged",
    "caption_sanity": "merged", "failed_shards": "merged", "shards_up_to_date": "merged",
}  # fmt: skip


class Room:
    """A project, its definitions and an instance of its own."""

    def __init__(self, project, instance):
        self.project, self.instance = project, instance
        logging.getLogger("dagster").setLevel(logging.WARNING)

    @property
    def ds(self):
        config = load_config(self.project.folder / "caption_assets.yaml")
        return Dataset(config, config.datasets[0])

    def job(self, name, **options):
        defs = build(load_config(self.project.folder / "caption_assets.yaml"))
        return defs.resolve_job_def(f"photos_{name}").execute_in_process(instance=self.instance, **options)

    def made(self, asset, shard=SHARD):
        key = dg.AssetKey(["photos", asset])
        records = self.instance.fetch_materializations(key, limit=10).records
        return next(r.asset_materialization for r in records if r.partition_key in (shard, None))

    def checks(self, result):
        return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    with StubServer() as stub, dg.instance_for_test() as instance, pytest.MonkeyPatch.context() as patch:
        patch.setattr("caption_assets.progress.OBSERVE_FIRST_S", 0.0)
        project = make_project(tmp_path_factory.mktemp("room"), stub.url, pictures=12, shard_size=8)
        project.config["engine"]["concurrency"] = 1
        project.write()
        (project.folder / "photos" / "0003.png").write_bytes(b"no picture")
        made = Room(project, instance)
        made.planned = made.job("plan")
        stub.latency = (1.3, 1.3)
        made.captioned = made.job("caption_shard", partition_key=SHARD)
        stub.latency = (0.0, 0.0)
        made.stub = stub
        yield made


def test_every_asset_says_what_it_is_and_where_its_code_is():
    dataset = {"name": "photos", "source": "/x", "prompts": [{"text": "Describe the picture."}], "exports": ["jsonl"]}
    graph = build(Config.model_validate({"datasets": [dataset]})).resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        columns = node.metadata["dagster/column_schema"].columns if "dagster/column_schema" in node.metadata else []
        assert all(column.description and column.type != "info" for column in columns), key
        assert node.group_name == "photos" and node.owners == ["team:captions"] and node.kinds and len(node.description) > 20, key
        (code,) = node.metadata["dagster/code_references"].code_references
        assert Path(code.file_path).parent.name == "assets", key
    assert {key.name: key.asset_key.path[1] for key in graph.asset_check_keys} == CHECKS
    blocking = {key.name for key in graph.asset_check_keys if graph.get(key).blocking}
    assert blocking == {"records_accounted"}


def test_figures_have_the_same_names_everywhere_and_are_numbers(room):
    for asset, names in FIGURES.items():
        metadata = room.made(asset).metadata
        assert names <= set(metadata), (asset, names - set(metadata))
        assert all(isinstance(metadata[name].value, (int, float)) for name in names)
    merged = {name: value.value for name, value in room.made("merged").metadata.items()}
    assert (merged["records"], merged["captioned"], merged["failed"], merged["coverage"]) == (8, 7, 1, 7 / 8)
    assert merged["requests"] == room.made("captions").metadata["requests"].value == 2
    hours = merged["engine_seconds"] / 3600
    assert merged["gpu_hours_per_million"] == pytest.approx(hours / 7 * 1e6, rel=0.01) and merged["engine_seconds"] >= 2.6


def test_rows_are_counted(room):
    counts = {"manifest": 8, "concat_grids": 8, "merged": 7, "failed": 1}
    for asset, rows in counts.items():
        assert room.made(asset).metadata["dagster/partition_row_count"].value == rows, asset
    assert room.made("shard_plan").metadata["dagster/row_count"].value == 12


def test_reasons_and_a_contact_sheet_of_few_bytes(room):
    metadata = room.made("merged").metadata
    (reason,) = metadata["reasons"].value.records
    assert (reason.data["reason"], reason.data["records"]) == ("not_an_image", 1) and "0003.png" in reason.data["example"]
    assert list(metadata)[:3] == ["records", "captioned", "failed"], "what people look for stands above what machines read"
    assert list(metadata).index("reasons") < list(metadata).index("pictures") < list(metadata).index("engine_spans")
    (fault,) = room.made("concat_grids").metadata["faults"].value.records
    assert fault.data == {"reason": "not_an_image", "records": 1}
    assert "faults" not in room.made("manifest").metadata, "no table of nothing"
    sheet = metadata["pictures"].value
    pictures = [part.partition(")")[0] for part in sheet.split("data:image/jpeg;base64,")[1:]]
    assert 1 <= len(pictures) <= 4 and sum(map(len, pictures)) <= 16 * 1024 * 4 / 3


def test_progress_and_time_left_are_observed_while_a_shard_is_asked(room):
    records = room.instance.fetch_observations(dg.AssetKey(["photos", "captions"]), limit=10).records
    assert records and {record.partition_key for record in records} == {SHARD}
    figures = {name: value.value for name, value in records[0].asset_observation.metadata.items()}
    assert {"records_so_far", "records_to_ask", "images_per_s", "images_per_s_now", "eta_s", "requests"} <= set(figures)
    assert figures["records_to_ask"] == 7 and 0 < figures["records_so_far"] <= 7 and figures["eta_s"] >= 0


def test_each_check_is_decided_where_its_asset_is_made(room):
    found = room.checks(room.captioned)
    assert set(found) == {"grid_integrity", "records_accounted", "caption_coverage", "caption_sanity"}
    assert {name for name, check in found.items() if not check.passed} == {"caption_coverage"}
    assert found["caption_coverage"].severity == dg.AssetCheckSeverity.ERROR, "7 of 8 are below coverage_error"
    assert {name: check.description for name, check in found.items()} == {
        "grid_integrity": "2 grids opened, all whole",
        "records_accounted": "8 records: 7 in merged, 1 in failed",
        "caption_coverage": "7 of 8 records have a caption",
        "caption_sanity": "nothing strange",
    }
    planned = room.checks(room.planned)["plan_unchanged"]
    assert planned.passed and planned.description == "0 planned files changed, 0 gone"
    steps = [event.step_key for event in room.captioned.all_events if event.event_type == dg.DagsterEventType.STEP_START]
    assert len(steps) == 5, "one a stage, none for a check"


def test_grids_are_looked_at_alone_and_damage_is_told(room):
    """By a run of the check alone, and by a job that needs no config."""
    asked, key = len(room.stub.log), dg.AssetKey(["photos", "concat_grids"])
    before = room.instance.fetch_materializations(key, limit=10).records
    path = Path(room.ds.layout.grid_tar(SHARD, 0))
    data = path.read_bytes()

    def alone():
        graph = build(load_config(room.project.folder / "caption_assets.yaml")).resolve_implicit_global_asset_job_def()
        job = graph.get_subset(asset_selection=set(), asset_check_selection={dg.AssetCheckKey(key, "grid_integrity")})
        return room.checks(job.execute_in_process(instance=room.instance, tags={"dagster/partition": SHARD}))["grid_integrity"]

    def latest():
        history = room.instance.event_log_storage.get_asset_check_execution_history
        record = history(dg.AssetCheckKey(key, "grid_integrity"), limit=1)[0]
        return record.event.dagster_event.asset_check_evaluation_data

    assert alone().passed and room.job("check_grids").success and latest().passed
    path.write_bytes(data[: len(data) // 2])
    damaged = alone()
    assert not damaged.passed and "grids-00000.tar" in damaged.metadata["problems"].value and "problem" in damaged.description
    assert not room.job("check_grids", raise_on_error=False).success
    assert not latest().passed and latest().partition == SHARD
    path.write_bytes(data)
    named = {"ops": {"photos__check_grids": {"config": {"shards": [SHARD]}}}}
    assert room.job("check_grids", run_config=named).success and latest().passed
    assert room.instance.fetch_materializations(key, limit=10).records == before and len(room.stub.log) == asked


def test_runs_carry_the_digest_of_what_they_were_launched_for(room):
    assert room.captioned.dagster_run.tags[CONFIG_TAG] == room.ds.config_digest


def test_the_night_asks_for_a_bounded_number_of_shards_that_are_not_done(room):
    schedule = nightly(room.ds)
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED and NIGHTLY_SHARDS == 50
    moment = datetime(2030, 1, 2, tzinfo=timezone.utc)
    resources = {"store": StoreResource()}
    repository = build(load_config(room.project.folder / "caption_assets.yaml")).get_repository_def()

    def asked() -> list[str]:
        with dg.build_schedule_context(
            room.instance, scheduled_execution_time=moment, resources=resources, repository_def=repository
        ) as context:
            return [request.partition_key for request in schedule.evaluate_tick(context).run_requests]

    assert asked() == ["shard-00001"]
    room.instance.add_dynamic_partitions(room.ds.partitions_name, later := [f"later-{n:03d}" for n in range(80)])
    assert len(asked()) == 50 and asked()[0] == "shard-00001"
    for shard in later:
        room.instance.delete_dynamic_partition(room.ds.partitions_name, shard)


def test_shards_of_another_prompt_are_shown(room):
    room.project.write(prompts=[{"text": "Name the colour."}])
    checks = room.checks(room.job("checks"))
    assert not checks["shards_up_to_date"].passed and checks["failed_shards"].passed
    assert checks["shards_up_to_date"].metadata["out_of_date_shards"].value == 1
    job = checks["shards_up_to_date"].metadata["job"].value
    assert job == "photos_recaption_out_of_date"
    assert checks["shards_up_to_date"].description == f"1 shard out of date: the job `{job}` asks for their runs"
    assert checks["failed_shards"].description == "no shard's last run failed"

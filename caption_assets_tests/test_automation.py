"""Shards that prepare themselves: manifest and grids of new partitions, where the config says so; nothing on the GPU, ever."""

import dagster as dg
import pytest

from caption_assets.configfile import load_config
from caption_assets.core.loop.leases import hold
from caption_assets.definitions import build
from caption_assets.partitions import Dataset
from caption_assets.resources.store import StoreResource
from caption_assets_tests.project import make_project, picture
from caption_assets_tests.stubs.openai_server import StubServer
from caption_assets_tests.ui import dagster_dev

PREPARED = {"photos/manifest", "photos/concat_grids"}
AUTOMATED = {"dagster/from_automation_condition": "true"}


@pytest.fixture
def instance():
    with dg.instance_for_test() as found:
        yield found


def planned(tmp_path, instance, **automation):
    project = make_project(tmp_path, "http://127.0.0.1:9/v1", automation=automation)
    config = load_config(tmp_path / "caption_assets.yaml")
    defs = build(config)
    assert defs.resolve_job_def("photos_plan").execute_in_process(instance=instance).success
    return project, defs, Dataset(config, config.datasets[0])


class Ticks:
    """What one tick after the other asks for: asset → shards."""

    def __init__(self, defs, instance):
        self.defs, self.instance, self.cursor = defs, instance, None

    def tick(self):
        result = dg.evaluate_automation_conditions(self.defs, self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        found = {r.key.to_user_string(): r.true_subset.expensively_compute_partition_keys() for r in result.results}
        return {asset: set(shards) for asset, shards in found.items() if shards}


def prepare(defs, instance, shard, **options):
    return defs.resolve_job_def("photos_prepare_shard").execute_in_process(instance=instance, partition_key=shard, **options)


def test_each_shard_is_asked_for_once_and_a_new_one_when_it_comes(tmp_path, instance):
    _, defs, ds = planned(tmp_path, instance, prepare=True)
    ticks = Ticks(defs, instance)
    assert ticks.tick() == {key: {"shard-00000", "shard-00001"} for key in PREPARED}, "also those that were there before"
    assert ticks.tick() == {}
    prepare(defs, instance, "shard-00000")
    assert ticks.tick() == {}
    instance.add_dynamic_partitions(ds.partitions_name, ["shard-00002"])
    assert ticks.tick() == {key: {"shard-00002"} for key in PREPARED}
    assert ticks.tick() == {}


def test_a_shard_that_failed_waits_for_a_person(tmp_path, instance):
    project, defs, _ = planned(tmp_path, instance, prepare=True)
    picture(project.folder / "photos" / "0001.png", 99, (50, 50))
    assert not prepare(defs, instance, "shard-00000", raise_on_error=False).success
    ticks = Ticks(defs, instance)
    assert {shard for asked in ticks.tick().values() for shard in asked} == {"shard-00001"}
    assert ticks.tick() == {}


def test_off_nothing_is_asked_for_and_nothing_is_there_to_be_switched_on_by_accident(tmp_path, instance):
    _, defs, _ = planned(tmp_path, instance)
    assert Ticks(defs, instance).tick() == {}
    assert not [s for s in defs.get_repository_def().sensor_defs if isinstance(s, dg.AutomationConditionSensorDefinition)]


def test_the_sensor_is_there_and_can_reach_no_asset_that_asks_a_model(tmp_path, instance):
    _, defs, _ = planned(tmp_path, instance, prepare=True)
    graph = defs.resolve_asset_graph()
    assert {key.to_user_string() for key in graph.get_all_asset_keys() if graph.get(key).automation_condition} == PREPARED
    (sensor,) = [s for s in defs.get_repository_def().sensor_defs if isinstance(s, dg.AutomationConditionSensorDefinition)]
    assert sensor.name == "photos_prepare_new" and sensor.default_status == dg.DefaultSensorStatus.RUNNING
    assert {key.to_user_string() for key in sensor.asset_selection.resolve(graph)} == PREPARED


def test_a_shard_that_somebody_works_on_is_left_to_them(tmp_path, instance):
    _, defs, ds = planned(tmp_path, instance, prepare=True)
    objects = StoreResource().objects
    with hold(objects, ds.layout.lease("shard-00000"), "their-run"):
        assert prepare(defs, instance, "shard-00000", tags=AUTOMATED).success
        assert not prepare(defs, instance, "shard-00000", raise_on_error=False).success, "who asks for it is told"
    assert not objects.exists(ds.layout.manifest("shard-00000"))


@pytest.mark.long
def test_the_daemon_prepares_what_the_sensor_planned(tmp_path):
    with StubServer() as stub:
        project = make_project(
            tmp_path, stub.url, automation={"prepare": True}, sensor={"enabled": True, "interval_s": 5, "settle_s": 0}
        )
        project.command("init")
        with dagster_dev(tmp_path, project.environment) as ui:
            shards = {"shard-00000", "shard-00001"}
            for asset in ("manifest", "concat_grids"):
                ui.wait_for(lambda asset=asset: ui.partitions("photos", asset)["materialized"] == shards)
            ui.wait_for(lambda: all(run["status"] == "SUCCESS" for run in ui.runs()))
            assert ui.partitions("photos", "captions")["unmaterialized"] == shards
        assert not stub.log
        assert {entry["status"] for entry in project.status().values()} == {"missing"}

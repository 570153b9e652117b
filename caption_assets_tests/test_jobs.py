"""Jobs that ask for other runs."""

import dagster as dg

from caption_assets.partitions import CONFIG_TAG, SHARD_ASSETS


def test_recaption_out_of_date_asks_for_a_backfill_of_just_the_shards_another_prompt_made(finished, tmp_path):
    project, stub = finished.copy(tmp_path / "copy"), finished.stub
    project.write(prompts=[{"text": "Describe the picture in one word."}])
    project.command("run", "--shards", "shard-00000")
    asked = len(stub.log)
    job = ("job", "execute", "-m", "caption_assets.definitions", "-j", "photos_recaption_out_of_date")
    project.dagster(*job)
    assert len(stub.log) == asked, "the job itself asks no engine"
    with dg.DagsterInstance.from_config(str(project.folder / ".dagster_home")) as instance:
        (backfill,) = instance.get_backfills()
    wanted = backfill.asset_backfill_data.target_subset
    assert {(key.path[-1], shard) for key, shard in wanted.iterate_asset_partitions()} == {
        (asset, "shard-00001") for asset in SHARD_ASSETS
    }
    assert CONFIG_TAG in backfill.tags
    project.command("run")
    assert "every captioned shard is up to date" in project.dagster(*job)

"""The asset `report` over a real instance: pages of what is finished, the others named."""

MATERIALIZE = ("asset", "materialize", "-m", "caption_assets.definitions", "--select", "photos/report")


def test_pages_of_finished_shards_are_written_and_only_where_something_changed(finished, tmp_path):
    project = finished.copy(tmp_path / "copy")
    (project.store / "photos" / "merged" / "shard-00001.parquet").unlink()
    project.command("reconcile")
    project.dagster(*MATERIALIZE)
    folder = project.store / "photos" / "report"
    assert {file.name for file in folder.glob("*.html")} == {"index.html", "shard-00000.html"}
    index = (folder / "index.html").read_text()
    assert "shard-00001" in index and 'href="shard-00001.html"' not in index, "named, but it has no page"

    before = project.files()
    project.command("run")
    project.dagster(*MATERIALIZE)
    after = project.files()
    changed = {name for name, at in after.items() if name.startswith("photos/report/") and before.get(name) != at}
    assert changed == {f"photos/report/{name}" for name in ("index.html", "figures.parquet", "shard-00001.html")}
    for row in project.rows("merged").values():
        shard = f"shard-{int(row['record_id'][:4]) // 4:05d}"
        assert row["caption"] in (folder / f"{shard}.html").read_text()

"""The asset `report` over a real instance: pages of what is finished, the others named."""

from caption_assets_tests.project import make_project
from caption_assets_tests.stubs.openai_server import StubServer

MATERIALIZE = ("asset", "materialize", "-m", "caption_assets.definitions", "--select", "photos/report")


def test_pages_of_finished_shards_are_written_and_only_where_something_changed(tmp_path):
    with StubServer() as stub:
        project = make_project(tmp_path, stub.url, pictures=12, shard_size=4)
        project.command("run", "--shards", "shard-00000..shard-00001")
        project.dagster(*MATERIALIZE)
        folder = project.store / "photos" / "report"
        assert {file.name for file in folder.glob("*.html")} == {"index.html", "shard-00000.html", "shard-00001.html"}
        index = (folder / "index.html").read_text()
        assert "shard-00002" in index and 'href="shard-00002.html"' not in index, "named, but it has no page"
        for row in project.rows("merged").values():
            shard = f"shard-{int(row['record_id'][:4]) // 4:05d}"
            assert row["caption"] in (folder / f"{shard}.html").read_text()

        before = project.files()
        project.command("run")
        project.dagster(*MATERIALIZE)
        after = project.files()
        changed = {name for name, at in after.items() if name.startswith("photos/report/") and before.get(name) != at}
        assert changed == {f"photos/report/{name}" for name in ("index.html", "figures.parquet", "shard-00002.html")}

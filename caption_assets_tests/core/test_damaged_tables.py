"""Tables of the store that hold other bytes than were written: named with the way out, or made again; never a traceback."""

import json
import os
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from caption_assets.assets.shard_run import reusable
from caption_assets.commands.faults import told
from caption_assets.config import EngineConfig
from caption_assets.core.damage import Damaged
from caption_assets.core.exports.exporting import verify
from caption_assets.core.exports.target import NOTE_KEYS, listed, sum_up
from caption_assets.core.layout import Layout
from caption_assets.core.modelpin import pinned_revision
from caption_assets.core.planning import load_plan, make_plan
from caption_assets.core.replies.chunks import ChunkFile, read_chunks
from caption_assets.core.sources import read_manifest
from caption_assets.core.storage.objects import MachineFault
from caption_assets.core.tables import DamagedTable, own_table, table, write_parquet
from caption_assets_tests.core.mergekit import Collection
from caption_assets_tests.core.shardkit import jpeg
from caption_assets_tests.core.sources.sourcekit import OBJECTS, PNG, spec, write

DAMAGES = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "garbage": lambda data: os.urandom(len(data)),
    "no end": lambda data: data[:-1],
    "a hole in the footer": lambda data: data[:-200] + bytes(190) + data[-10:],
}


@pytest.fixture
def planned(tmp_path):
    dataset = spec(f"{write(tmp_path / 'in', {'a.png': PNG, 'b.png': PNG})}/")
    layout = Layout(str(tmp_path / "store"), "d")
    return dataset, layout, make_plan(OBJECTS, layout, dataset).plan


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_plan_is_named_and_stays(planned, damage, tmp_path):
    _, layout, _ = planned
    file = tmp_path / "store/d/plan/gen-00000.parquet"
    damaged = DAMAGES[damage](file.read_bytes())
    file.write_bytes(damaged)
    with pytest.raises(DamagedTable) as error:
        load_plan(OBJECTS, layout)
    said = told(error.value)
    assert said and said.startswith(f"{file}: is damaged (") and "restore it from a copy" in said
    assert file.read_bytes() == damaged


def test_a_foreign_table_in_the_plan_is_named(planned, tmp_path):
    file = tmp_path / "store/d/plan/gen-00000.parquet"
    pq.write_table(pa.table({"source_uri": ["x"] * 20, **{f"c{n}": [1] * 20 for n in range(20)}}), file)
    with pytest.raises(DamagedTable, match="says nothing of shards"):
        load_plan(OBJECTS, planned[1])


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_manifest_is_made_again_by_the_next_run_of_its_shard(planned, damage):
    dataset, layout, plan = planned
    uri = layout.manifest(plan.shards[0])
    write_parquet(OBJECTS, uri, read_manifest(OBJECTS, dataset, plan.entries(plan.shards[0])))
    version = table(OBJECTS, uri).metadata.get("version", "")
    OBJECTS.put(uri, DAMAGES[damage](OBJECTS.read(uri)))
    assert reusable(OBJECTS, uri, version) is None


def test_damage_behind_a_good_footer_is_named_where_it_is_read(planned):
    dataset, layout, plan = planned
    uri = layout.manifest(plan.shards[0])
    handle = write_parquet(OBJECTS, uri, read_manifest(OBJECTS, dataset, plan.entries(plan.shards[0])))
    data = OBJECTS.read(uri)
    footer = int.from_bytes(data[-8:-4], "little") + 8
    OBJECTS.put(uri, data[:4] + bytes(len(data) - footer - 4) + data[-footer:])
    with pytest.raises(DamagedTable, match="is damaged"):
        list(handle.batches(OBJECTS))


def test_a_folder_of_a_tables_name_is_named(planned):
    uri = planned[1].manifest("s1")
    os.makedirs(f"{uri}/x")
    with pytest.raises(DamagedTable, match=r"s1.parquet: is damaged .*is not a file"):
        table(OBJECTS, uri)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The store of one shard, with every kind of table that there is."""
    made = Collection(tmp_path_factory.mktemp("finished")).add({f"{n}.jpg": jpeg(n) for n in range(4)})
    (shard,) = made.add({"9.jpg": b""}).prepare()
    made.caption_all(shard)
    made.revoke(shard, ["request-1"])
    made.merge(shard)
    return made.root / "store" / "photos"


def contents(uri: str, schema: pa.Schema) -> pa.Table | None:
    """What this program reads there; None where it says that it is damaged."""
    if "/captions/" in uri:
        chunks = read_chunks(OBJECTS, [ChunkFile(uri, "step", 0)], schema, schema.names, [])
        return next((rows for _, rows in chunks), None)
    try:
        with own_table(OBJECTS, uri) as file:
            return file.read()
    except DamagedTable:
        return None


@pytest.mark.parametrize("folder", ["plan", "manifest", "concat_grids", "captions", "merged", "failed"])
def test_a_changed_byte_is_never_read_as_other_rows(finished, folder):
    for file in sorted((finished / folder).rglob("*.parquet")):
        right, schema = file.read_bytes(), pq.read_schema(file)
        rows, named = contents(str(file), schema), 0
        for place in range(4, len(right) - int.from_bytes(right[-8:-4], "little") - 8, 13):
            file.write_bytes(right[:place] + bytes([right[place] ^ 0x11]) + right[place + 1 :])
            found = contents(str(file), schema)
            named += found is None
            assert found is None or found.equals(rows), f"{file.name}: byte {place}"
        file.write_bytes(right)
        assert rows is not None and named


def test_a_worker_whose_command_is_gone_goes_on_in_silence():
    from caption_assets.commands.worker import _say

    end, pipe = os.pipe()
    os.close(end)
    answers = os.fdopen(pipe, "w")
    _say(answers, event="progress")
    _say(answers, event="ended")
    with suppress(OSError):
        answers.close()


def test_a_scratch_folder_that_is_not_there_is_named(planned, tmp_path, monkeypatch):
    dataset, layout, plan = planned
    monkeypatch.setenv("CAPTION_ASSETS_SCRATCH", f"{tmp_path}/gone")
    with pytest.raises(MachineFault) as error:
        write_parquet(OBJECTS, layout.manifest(plan.shards[0]), read_manifest(OBJECTS, dataset, plan.entries(plan.shards[0])))
    assert told(error.value) == f"{tmp_path}/gone: there is no such folder: make it, or change $CAPTION_ASSETS_SCRATCH"


@pytest.mark.parametrize("said", ['{"revisions": {', "", "[]", '{"revisions": null}'])
def test_a_damaged_pin_stops_what_needs_it_and_nothing_else(planned, said):
    _, layout, _ = planned
    OBJECTS.put(layout.model, said.encode())
    with pytest.raises(Damaged) as error:
        pinned_revision(OBJECTS, layout, EngineConfig(model="owner/name"))
    assert str(told(error.value)).startswith(f"{layout.model}: is damaged (") and "remove it" in str(error.value)
    assert OBJECTS.read(layout.model) == said.encode()
    pinned_revision(OBJECTS, layout, EngineConfig(kind="openai", model="stub", endpoints=["http://127.0.0.1:9/v1"]))
    assert b"stub@" in OBJECTS.read(layout.model)


SUMMARY = {"format": "jsonl", "dataset": "photos", "records": 0, "files": 0, "bytes": 0}
WORDS = dict.fromkeys(NOTE_KEYS, "many")


@pytest.mark.parametrize(
    "said",
    ['{"shards": ', "{}", {**SUMMARY, "shards": []}, {**SUMMARY, "shards": {"s": {}}}, {**SUMMARY, "shards": {"s": WORDS}}],
)
def test_a_damaged_summary_of_an_export_is_named(said, tmp_path):
    (tmp_path / "export.json").write_text(said if isinstance(said, str) else json.dumps(said))
    with pytest.raises(Damaged, match=r"export.json: is damaged .* export again"):
        verify(OBJECTS, str(tmp_path), "photos")


@pytest.mark.parametrize("name", ["s.json", "s.jsonl"])
@pytest.mark.parametrize("said", ["{", '{"records": 1}\n{'])
def test_a_damaged_note_or_list_of_an_export_is_named(name, said, tmp_path):
    (tmp_path / ".export").mkdir()
    (tmp_path / ".export" / name).write_text(said)
    with pytest.raises(Damaged, match=rf"\.export/{name}: is damaged .* export again"):
        list(listed(OBJECTS, f"{tmp_path}/", "s"))
        sum_up(OBJECTS, f"{tmp_path}/", {})

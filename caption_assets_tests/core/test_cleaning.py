"""clean removes what nobody needs any more, and nothing else."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

from caption_assets.core.cleaning import clean
from caption_assets.core.loop.leases import hold
from caption_assets.core.merging import merge_shard
from caption_assets.core.objectstore import ObjectStore
from caption_assets_tests.core.scripted import Scripted
from caption_assets_tests.core.shardkit import Shard, make_shard


def merge(shard: Shard) -> None:
    job = shard.job()
    with tempfile.TemporaryDirectory() as scratch:
        merged = merge_shard(
            shard.objects, shard.layout, shard.spec, shard.key, shard.recipes, job.manifest, job.mapping, Path(scratch), "run"
        )
        assert not merged.problems
        shard.objects.put_file(shard.layout.merged(shard.key), merged.merged_path)
        shard.objects.put_file(shard.layout.failed(shard.key), merged.failed_path)


def files(shard: Shard) -> set[str]:
    return {str(path) for path in Path(shard.layout.root).rglob("*") if path.is_file()}


def cleaned(shard: Shard, dry_run: bool = False) -> set[str]:
    """Names of what goes; checks that this, and only this, is gone."""
    before = files(shard)
    gone = {item.uri for item in clean(shard.objects, shard.layout, shard.spec, shard.recipes, dry_run=dry_run)}
    assert files(shard) == (before if dry_run else before - gone) and gone <= before
    return gone


def test_a_tidy_store_stays_as_it_is(tmp_path):
    shard = make_shard(tmp_path, 6)
    shard.captions(Scripted())
    merge(shard)
    assert cleaned(shard) == set()


def test_replies_to_superseded_recipes_go_and_those_to_current_ones_stay(tmp_path):
    shard = make_shard(tmp_path, 6)
    shard.captions(Scripted())
    old = {str(p) for p in Path(shard.layout.chunks_folder(shard.key, "caption", shard.recipes["caption"])).iterdir()}
    shard.options["prompts"] = [{"text": "Another question."}]
    shard.captions(Scripted())
    assert cleaned(shard, dry_run=True) == old
    assert cleaned(shard) == old
    assert shard.pending() == 0 and len(shard.replies()) == 2


def test_grids_go_once_merged_when_they_are_only_kept_until_then(tmp_path):
    shard = make_shard(
        tmp_path, 6, grid={"rows": 2, "cols": 2, "cell_size": 32, "gap": 2, "label_font_size": 8, "keep": "until_merged"}
    )
    shard.captions(Scripted())
    assert cleaned(shard) == set()
    merge(shard)
    shard.options["prompts"] = [{"text": "Another question."}]
    shard.captions(Scripted())
    assert not any(uri.endswith(".tar") for uri in cleaned(shard))  # merged, but for another recipe
    merge(shard)
    assert cleaned(shard) == {shard.layout.grid_tar(shard.key, 0)}
    assert shard.pending() == 0 and Path(shard.layout.mapping(shard.key)).exists()


def test_nothing_of_a_shard_that_a_run_works_on_goes(tmp_path):
    shard = make_shard(tmp_path, 6)
    shard.captions(Scripted())
    shard.options["prompts"] = [{"text": "Another question."}]
    with hold(ObjectStore(), shard.layout.lease(shard.key), "a-run"):
        assert cleaned(shard) == set()
    assert len(cleaned(shard)) >= 1


def test_dead_leases_go(tmp_path):
    shard = make_shard(tmp_path, 2)
    lease = {"run_id": "x", "expires": time.time() - 10_000, "holder": "elsewhere:b:1:2", "ttl_s": 90}
    shard.objects.put(shard.layout.lease("gone"), json.dumps(lease).encode())
    os.utime(shard.layout.lease("gone"), (time.time() - 100, time.time() - 100))
    assert cleaned(shard) == {shard.layout.lease("gone")}


def test_temporaries_of_killed_processes_go_when_they_are_old(tmp_path):
    shard = make_shard(tmp_path, 2)
    stray, young = (Path(shard.layout.root) / "merged" / f".caption-assets-{name}" for name in ("old", "young"))
    for path in (stray, young):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    os.utime(stray, (time.time() - 7200, time.time() - 7200))
    assert cleaned(shard) == {str(stray)}

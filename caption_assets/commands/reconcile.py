"""`caption-assets reconcile`: Dagster's status made equal to the store, in both directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG

from caption_assets.commands.workplace import DONE, Workplace
from caption_assets.core import recipes
from caption_assets.display import plain, plain_metadata
from caption_assets.materializations import forget_materializations, report_materializations
from caption_assets.partitions import SHARD_ASSETS, Dataset
from caption_assets.shards import DatasetState, dataset_state

if TYPE_CHECKING:
    from caption_assets.core.plan.plans import Plan
    from caption_assets.core.tables import TableHandle

READERS, PAGE = 8, 500


@dataclass
class Found:
    """What was put right, by asset."""

    reported: dict[str, list[str]] = field(default_factory=dict)
    lost: dict[str, list[str]] = field(default_factory=dict)


def reconcile(place: Workplace, names: Sequence[str]) -> int:
    from caption_assets.core.plan.plans import load_plan

    for ds in place.chosen(names):
        plan = load_plan(place.objects, ds.layout)
        found = reconcile_dataset(place, ds, plan)
        for asset in SHARD_ASSETS:
            reported, lost = found.reported.get(asset, []), found.lost.get(asset, [])
            if reported or lost:
                found_there, gone = f"{len(reported)} shards found in the store", f"{len(lost)} lost there and marked missing"
                print(f"{ds.name}/{asset}: {found_there}, {gone}")
        if not found.reported and not found.lost:
            print(f"{ds.name}: Dagster and the store agree")
        for key in sorted(set(place.instance.get_dynamic_partitions(ds.partitions_name)).difference(plan.shards)):
            remedy = f"`caption-assets plan {ds.name}`, or delete it in the UI (Delete partitions, in an asset's menu)"
            print(f"{ds.name}: no plan knows the partition {plain(key)}, added by hand: {remedy}")
    return DONE


def reconcile_dataset(place: Workplace, ds: Dataset, plan: Plan) -> Found:
    """Reports what the store holds and Dagster does not know; marks missing what the store has lost. Asks no model."""
    from caption_assets.assets.plan import register_shards

    register_shards(place.instance, ds, plan)
    if plan.shards and place.instance.get_latest_materialization_event(ds.key("shard_plan")) is None:
        metadata = {"shards": len(plan.shards), "reconciled": True}
        place.instance.report_runless_asset_event(dg.AssetMaterialization(ds.key("shard_plan"), metadata=metadata))
    state = dataset_state(place.instance, ds, place.objects, list(plan.shards))
    stored, found = Stored(place, ds, state), Found()
    planned = [shard for shard in plan.shards if shard not in state.at_work]
    for asset in SHARD_ASSETS:
        known = state.versions(asset)
        missing = [shard for shard in planned if shard not in known and stored.has(asset, shard)]
        for page in stored.made(asset, missing):
            report_materializations(place.instance, page)
            found.reported.setdefault(asset, []).extend(str(made.partition) for made in page)
        lost = [shard for shard in planned if shard in known and not stored.has(asset, shard)]
        if lost:
            forget_materializations(place.instance, ds.key(asset), lost)
            found.lost[asset] = lost
    return found


class Stored:
    """What the store holds of a dataset, from one listing per kind of object."""

    def __init__(self, place: Workplace, ds: Dataset, state: DatasetState) -> None:
        self.place, self.ds, self.state = place, ds, state
        names = {asset: self._names(asset) for asset in SHARD_ASSETS if asset != "recaptions"}
        self.names = {**names, "recaptions": names["captions"]}
        self._answered: dict[str, str | None] = {}

    def _names(self, asset: str) -> set[str]:
        prefix, objects = f"{self.ds.layout.root}/{asset}/", self.place.objects
        if asset == "captions":
            return set(objects.folders(prefix))
        below = (info.uri[len(prefix) :] for info in objects.list(prefix))
        if asset == "concat_grids":
            return {path.split("/", 1)[0] for path in below if path.endswith("/mapping.parquet")}
        return {path.removesuffix(".parquet") for path in below if "/" not in path and path.endswith(".parquet")}

    def has(self, asset: str, shard: str) -> bool:
        """Whether objects of it are there (a shard of source faults only has no replies, and needs none)."""
        if asset in ("captions", "recaptions"):
            return shard in self.names["captions"] or shard in self.names["concat_grids"]
        if asset in ("merged", "failed"):
            return shard in self.names["merged"] and shard in self.names["failed"]
        return shard in self.names[asset]

    def made(self, asset: str, shards: Sequence[str]) -> Iterator[list[dg.AssetMaterialization]]:
        """What Dagster is to be told, in pages; without shards where what lies there is not whole or not of today's making."""
        replies = asset in ("captions", "recaptions")  # computed from all of a shard's replies; else one footer or two are read
        with ThreadPoolExecutor(1 if replies else READERS, thread_name_prefix="reconcile") as pool:
            for start in range(0, len(shards), PAGE):
                found = pool.map(lambda shard: self._made(asset, shard), shards[start : start + PAGE])
                if page := [made for made in found if made is not None]:
                    yield page

    def _made(self, asset: str, shard: str) -> dg.AssetMaterialization | None:
        make = {"captions": self._captions, "recaptions": self._captions, "merged": self._pair, "failed": self._pair}
        event = make.get(asset, self._table)(asset, shard)
        if event is None:
            return None
        version, metadata = event
        return dg.AssetMaterialization(
            asset_key=self.ds.key(asset),
            partition=shard,
            metadata={**metadata, "reconciled": True},
            tags={DATA_VERSION_TAG: version},
        )

    def _table(self, asset: str, shard: str) -> tuple[str, dict[str, Any]] | None:
        handle = self._handle({"manifest": self.ds.layout.manifest, "concat_grids": self.ds.layout.mapping}[asset](shard))
        version = handle.metadata.get("version") if handle else None
        return (version, plain_metadata(handle.summary)) if handle and version else None

    def _captions(self, asset: str, shard: str) -> tuple[str, dict[str, Any]] | None:
        """Captions are done when every cell of every current recipe is; recaptions then, too."""
        if shard not in self._answered:
            self._answered[shard] = self._version_of_answers(shard)
        version = self._answered[shard]
        return (version, {}) if version is not None else None

    def _version_of_answers(self, shard: str) -> str | None:
        """data_version of the shard's captions; None while the engine is owed anything."""
        from caption_assets.core.captioning import count_pending
        from caption_assets.core.replies.chunks import data_version, replaced_shards

        manifest, mapping = self._handle(self.ds.layout.manifest(shard)), self._handle(self.ds.layout.mapping(shard))
        if manifest is None or mapping is None:
            return None
        made = current_recipes(self.place, self.ds)
        if count_pending(self.place.objects, self.ds.layout, self.ds.spec, shard, made, manifest, mapping).requests:
            return None
        replaced = replaced_shards(self.place.objects, self.ds.layout, manifest.metadata)
        return data_version(self.place.objects, self.ds.layout, self.ds.spec, shard, made, replaced)

    def _pair(self, asset: str, shard: str) -> tuple[str, dict[str, Any]] | None:
        from caption_assets.core.merging import read_pair

        pair = read_pair(self.place.objects, self.ds.layout, shard)
        if pair is None:
            return None
        metadata = pair.merged.metadata
        return metadata["data_version"], {**plain_metadata(pair.merged.summary), "run_id": metadata["run_id"]}

    def _handle(self, uri: str) -> TableHandle | None:
        from caption_assets.core import tables
        from caption_assets.core.objectstore import ObjectMissing

        try:
            return tables.table(self.place.objects, uri)
        except (ObjectMissing, tables.DamagedTable):
            return None


def current_recipes(place: Workplace, ds: Dataset) -> dict[str, str]:
    """Today's recipe of each output, with the revision pinned in the store."""
    from caption_assets.core.modelpin import pinned_revision

    return recipes.output_recipes(ds.spec, ds.engine, pinned_revision(place.objects, ds.layout, ds.engine))

"""Parquet tables of the store: written whole or not at all, handed on as light handles."""

from typing import TYPE_CHECKING

import dagster as dg

from caption_assets.core.layout import Layout
from caption_assets.display import plain_metadata
from caption_assets.resources.store import StoreResource

if TYPE_CHECKING:
    from pathlib import Path

    from caption_assets.core.tables import RecordStream, TableHandle


class ParquetIOManager(dg.ConfigurableIOManager):
    """Publishes a core.tables.RecordStream, or a finished local parquet file, under the table's final name; a TableHandle
    is a table that lies there already and is kept.

    Downstream receives a core.tables.TableHandle (path, schema, row count) to be scanned in batches.
    """

    store: str
    objects: StoreResource

    def address(self, context: dg.OutputContext | dg.InputContext) -> str:
        """`{store}/{dataset}/{asset}/{shard}.parquet`, and the mapping for concat_grids."""
        dataset, asset = context.asset_key.path
        layout, shard = Layout(self.store, dataset), context.partition_key
        place = {"manifest": layout.manifest, "concat_grids": layout.mapping, "merged": layout.merged, "failed": layout.failed}
        return place[asset](shard)

    def handle_output(self, context: dg.OutputContext, obj: "RecordStream | Path | TableHandle") -> None:
        from caption_assets.core import tables
        from caption_assets.core.plan.plans import PlanError

        objects, uri = self.objects.objects, self.address(context)
        if isinstance(obj, (tables.RecordStream, tables.TableHandle)):
            try:
                handle = obj if isinstance(obj, tables.TableHandle) else tables.write_parquet(objects, uri, obj)
            except PlanError as error:  # a stream's source is read here; what it says comes before any traceback
                raise dg.Failure(str(error), allow_retries=False) from None
            figures = plain_metadata(handle.summary)
        else:  # whoever made the file tells its figures
            objects.put_file(uri, obj)
            handle, figures = tables.table(objects, uri), {}
        context.add_output_metadata({**figures, "path": uri, "dagster/partition_row_count": handle.rows})

    def load_input(self, context: dg.InputContext) -> "TableHandle":
        from caption_assets.core import tables
        from caption_assets.core.objectstore import ObjectMissing

        uri = self.address(context)
        try:
            return tables.table(self.objects.objects, uri)
        except ObjectMissing:
            asset = context.asset_key.to_user_string()
            raise dg.Failure(f"{uri} does not exist: materialize {asset} for {context.partition_key} first") from None
        except tables.DamagedTable as error:
            raise dg.Failure(str(error), allow_retries=False) from None

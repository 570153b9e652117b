"""captions.duckdb: built on local scratch from the merged shards, swapped in whole."""

from typing import TYPE_CHECKING

import dagster as dg

from caption_assets.core.layout import Layout
from caption_assets.resources.store import StoreResource

if TYPE_CHECKING:
    from caption_assets.core.index import IndexRequest


class DuckDBIOManager(dg.ConfigurableIOManager):
    """Brings a dataset's captions.duckdb up to date with the shards of an IndexRequest; readers never see half of it."""

    store: str
    objects: StoreResource

    def handle_output(self, context: dg.OutputContext, obj: "IndexRequest") -> None:
        from caption_assets.core.index import build_index

        layout = Layout(self.store, context.asset_key.path[0])
        figures = build_index(self.objects.objects, layout, obj)
        context.add_output_metadata({**figures, "dagster/row_count": figures["captions"]})

    def load_input(self, context: dg.InputContext) -> str:
        """The address of the file; open it read-only."""
        return Layout(self.store, context.asset_key.path[0]).index

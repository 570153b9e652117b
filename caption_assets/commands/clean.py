"""`caption-assets clean`: what nobody needs any more goes, and is named."""

from __future__ import annotations

from caption_assets.commands.reconcile import current_recipes
from caption_assets.commands.workplace import DONE, Workplace


def clean(place: Workplace, dry_run: bool) -> int:
    from caption_assets.core.cleaning import clean as remove

    for ds in place.datasets:
        gone = remove(place.objects, ds.layout, ds.spec, current_recipes(place, ds), dry_run=dry_run)
        for item in gone:
            print(f"{'would remove' if dry_run else 'removed'} {item}")
        if not gone:
            print(f"{ds.name}: nothing to remove")
    return DONE

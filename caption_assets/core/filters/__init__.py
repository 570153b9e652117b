"""The filters behind core.quality, one module per kind of bad caption."""

"""Captions for image collections of any size: Dagster assets over vLLM."""

__version__ = "0.1.0"

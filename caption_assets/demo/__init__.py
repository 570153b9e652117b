"""The demo: a small collection of coloured shapes, and a model of under a million parameters that captions them."""

from pathlib import Path

MODEL = Path(__file__).parent / "model"
"""The folder of the demo model, as vLLM loads it."""

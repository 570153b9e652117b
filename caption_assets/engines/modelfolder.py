"""Where a model's files lie, if on this machine."""

from __future__ import annotations

from pathlib import Path

import caption_assets
from caption_assets.engines.base import WrongSettings

DEMO_FOLDER = Path(caption_assets.__file__).parent / "demo" / "model"


def is_path(model: str) -> bool:
    """Whether it can only be a folder, be it there or not: no hub name looks like that."""
    return model.startswith(("/", "~", "./", "../"))


def model_folder(model: str) -> Path | None:
    """The folder of a model that lies on this machine, `demo` included; None for a hub name."""
    if model == "demo":
        return DEMO_FOLDER
    path = Path(model).expanduser()
    if path.is_dir():
        return path.absolute()
    if is_path(model):
        raise WrongSettings(f"engine.model: there is no folder {path}; set it to one, to a hub name, or to demo")
    return None

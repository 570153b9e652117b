"""Which exact model answers: a commit of the hub, or a hash over the files of a folder."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from caption_assets.engines.base import EngineDown, WrongSettings
from caption_assets.engines.modelfolder import model_folder

if TYPE_CHECKING:
    from caption_assets.config import EngineConfig

CACHE_NAME = "revisions.json"


def resolve_revision(config: EngineConfig) -> str | None:
    """The model's revision, to be kept beside the captions.

    A folder, or demo: `sha256-…` of its files. A hub name: the commit that engine.revision (or main) is now; without a network,
    the one in the local cache. Endpoints that run already, and batch files for them: engine.revision as written, perhaps None.
    Raises EngineDown where a hub name cannot be resolved.
    """
    if config.kind == "openai" or (config.kind == "batch" and config.endpoints):
        return config.revision
    folder = model_folder(config.model)
    if folder is not None:
        return folder_revision(folder)
    return _hub_commit(config.model, config.revision or "main")


def folder_revision(folder: Path) -> str:
    """A hash over names and contents of a folder's files. Files that have not changed are not read again."""
    from caption_assets.engines.serverstate import engines_folder

    cache_file = engines_folder().parent / CACHE_NAME
    try:
        cache = json.loads(cache_file.read_text())
    except (OSError, ValueError):
        cache = {}
    known: dict[str, list[str]] = cache.get(str(folder), {})
    files: dict[str, list[str]] = {}
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or any(part.startswith(".") or part == "__pycache__" for part in file.relative_to(folder).parts):
            continue
        status, name = file.stat(), str(file.relative_to(folder))
        stamp = f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"
        before = known.get(name)
        files[name] = before if before and before[0] == stamp else [stamp, _sha256(file)]
    if not files:
        raise WrongSettings(f"engine.model: the folder {folder} has no files")
    if files != known:
        _keep(cache_file, {**cache, str(folder): files})
    lines = "".join(f"{name}\0{digest}\n" for name, (_, digest) in files.items())
    return f"sha256-{hashlib.sha256(lines.encode()).hexdigest()[:40]}"


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as source:
        while piece := source.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _keep(cache_file: Path, cache: dict[str, dict[str, list[str]]]) -> None:
    """Losing the cache costs a reading of the files; a folder that may not be written to costs nothing else."""
    try:
        cache_file.parent.mkdir(parents=True, exist_ok=True)
        draft = cache_file.with_name(f".{CACHE_NAME}.{os.getpid()}")
        draft.write_text(json.dumps(cache))
        os.replace(draft, cache_file)
    except OSError:
        pass


def _hub_commit(name: str, revision: str) -> str:
    if len(revision) == 40 and all(c in "0123456789abcdef" for c in revision):
        return revision
    try:
        from huggingface_hub import HfApi, constants
        from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError
    except ImportError:
        raise WrongSettings(
            f"engine.model {name!r} is a hub name, which needs huggingface_hub: pip install 'caption-assets[hf]'"
        ) from None
    try:
        if not constants.HF_HUB_OFFLINE:
            sha = HfApi().model_info(name, revision=revision, timeout=20).sha
            if sha:
                return str(sha)
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        raise WrongSettings(
            f"engine.model {name!r}, revision {revision!r}: the hub has none such: {_first_line(error)}"
        ) from None
    except Exception as error:
        why = _first_line(error)
    else:
        why = "HF_HUB_OFFLINE is set"
    cached = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "refs" / revision
    if cached.is_file():
        return cached.read_text().strip()
    raise EngineDown(
        f"engine.model {name!r}: there is no such folder, the hub cannot be asked for its revision, and the local cache has "
        f"none: {why}. Look at the name and the network"
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)

"""Finding and reading caption_assets.yaml: `${VAR}`, relative paths, and one clear message where it cannot be used."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from caption_assets.config import Config
from caption_assets.configerrors import ConfigError, describe_error
from caption_assets.core.hiding import hidden

CONFIG_ENV = "CAPTION_ASSETS_CONFIG"
DEFAULT_PATH = "caption_assets.yaml"


def config_path(path: str | os.PathLike[str] | None = None) -> Path:
    """Where the config lies: the argument, else $CAPTION_ASSETS_CONFIG, else ./caption_assets.yaml."""
    return Path(path or os.environ.get(CONFIG_ENV) or DEFAULT_PATH).expanduser().absolute()


def load_config(path: str | os.PathLike[str] | None = None) -> Config:
    """Reads and checks the config. With no file anywhere named: an empty one, without datasets.

    Relative local paths in it (store, sources, local_roots, a model folder) count from the file's folder.
    Raises ConfigError, whose message is meant for the user.
    """
    named = path or os.environ.get(CONFIG_ENV)
    file = config_path(path)
    if not file.exists():
        if named:
            raise ConfigError(f"{file}: no such config file; `caption-assets init` writes an example")
        return Config()
    raw = _read_yaml(file)
    if raw is None:
        return Config()
    if not isinstance(raw, dict):
        raise ConfigError(f"{file}: must be a mapping with the keys {', '.join(Config.model_fields)}")
    try:
        return Config.model_validate(_absolute(_substitute(raw, file, ""), file.parent))
    except RecursionError:
        raise ConfigError(f"{file}: a value holds itself, or values lie too deep in each other") from None
    except ValidationError as error:
        raise ConfigError(f"{file}:\n" + "\n".join(f"  {describe_error(e)}" for e in error.errors())) from None


def json_schema() -> dict[str, Any]:
    """For editors: `# yaml-language-server: $schema=…`."""
    schema = Config.model_json_schema()
    source = schema["$defs"]["DatasetConfig"]["properties"]["source"]
    schema["$defs"]["DatasetConfig"]["properties"]["source"] = {"anyOf": [{"type": "string"}, source], "title": "Source"}
    return schema


def _read_yaml(file: Path) -> Any:
    """What the file says. A key that stands twice in a mapping is an error; YAML readers would take the last and say nothing."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    def mapping(loader: Any, node: Any) -> Any:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            name = str(key.value)
            if name in seen and name != "<<":
                line = key.start_mark.line + 1
                raise ConfigError(f"{file}: line {line}: the key {name!r} stands in line {seen[name]} already; keep one of them")
            seen[name] = key.start_mark.line + 1
        return loader.construct_yaml_map(node)

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    try:
        return yaml.load(file.read_text(encoding="utf-8-sig"), Loader)  # noqa: S506
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file}: not a readable YAML file: {hidden(str(error))}") from None
    except RecursionError:
        raise ConfigError(f"{file}: values lie too deep in each other") from None


def _substitute(value: Any, file: Path, key: str) -> Any:
    """`${VAR}` in every string, from the environment; done after parsing, so that a value cannot change the structure."""
    if isinstance(value, dict):
        return {k: _substitute(v, file, f"{key}.{k}".lstrip(".")) for k, v in value.items()}
    if isinstance(value, list):
        return [_substitute(v, file, f"{key}.{i}") for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise ConfigError(f"{file}: {key}: the environment variable {match[1]} is not set")
        return os.environ[match[1]]

    return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", replace, value)


def _absolute(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    def fix(value: Any) -> Any:
        if isinstance(value, list):
            return [fix(v) for v in value]
        if not isinstance(value, str) or "://" in value or not value.strip():
            return value
        return os.path.normpath(folder / os.path.expanduser(value)) + ("/" if value.endswith("/") else "")

    raw = {**raw, "store": fix(raw.get("store", "./store"))}
    engine = raw.get("engine")
    if isinstance(engine, dict) and str(engine.get("model", "")).startswith(("./", "../", "~/")):
        raw["engine"] = {**engine, "model": fix(engine["model"])}
    if isinstance(raw.get("datasets"), list):
        raw["datasets"] = [_absolute_dataset(d, fix) if isinstance(d, dict) else d for d in raw["datasets"]]
    return raw


def _absolute_dataset(raw: dict[str, Any], fix: Any) -> dict[str, Any]:
    raw = {**raw, **({"source": fix(raw["source"])} if "source" in raw else {})}
    if isinstance(raw.get("images"), dict) and "local_roots" in raw["images"]:
        raw["images"] = {**raw["images"], "local_roots": fix(raw["images"]["local_roots"])}
    return raw

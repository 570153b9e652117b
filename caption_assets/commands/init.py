"""`caption-assets init`: an example config where there is none, and a prepared Dagster instance."""

from __future__ import annotations

from pathlib import Path

from caption_assets.commands.workplace import DONE, workplace
from caption_assets.configfile import config_path, load_config
from caption_assets.instance import POSTGRES_YAML, dagster_home, prepare, step_logs_yaml

EXAMPLE = """\
# yaml-language-server: $schema=./caption_assets.schema.json
# What may stand here: docs/config.md
store: ./store                      # or s3://bucket/prefix
datasets:
  - name: photos
    source: ./photos                # a folder, file or glob of pictures, WebDataset tars, JSONL or parquet; or s3://bucket/prefix/
    prompts:
      - name: caption
        text: Describe this picture in two or three sentences.
engine:
  kind: vllm                        # vllm: servers started here | openai: endpoints that run already | batch
  model: Qwen/Qwen2.5-VL-3B-Instruct
"""


def init(config: str | None, postgres: bool, logs_to: str | None) -> int:
    """Writes what is missing and keeps what is there; tells Dagster what the store already holds."""
    import json

    from caption_assets.commands.reconcile import reconcile
    from caption_assets.configfile import json_schema

    file = config_path(config)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(EXAMPLE)
        schema = file.parent / "caption_assets.schema.json"
        schema.write_text(json.dumps(json_schema(), indent=1))
        print(f"wrote {file} and {schema.name}: set `source` and `model` there")
    loaded = load_config(file)
    home, named = dagster_home(file)
    parts = [POSTGRES_YAML if postgres else "", step_logs_yaml(loaded, logs_to)]
    fresh = prepare(home, *parts)
    print(
        f"{'prepared' if fresh else 'found'} the Dagster instance in {home}"
        + ("" if named else f"; for `dagster dev`: export DAGSTER_HOME={home}")
    )
    text = (home / "dagster.yaml").read_text()
    if missing := "".join(part for part in parts if part not in text):
        print(f"{home}/dagster.yaml exists and stays as it is; this would belong there now:\n{missing}")
    if (loaded.datasets and Path(loaded.store).exists()) or loaded.store.startswith("s3://"):
        with workplace(config, say_home=False) as place:
            return reconcile(place, [])
    return DONE

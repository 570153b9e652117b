"""What `--help` says below the options of each command: examples, and what its exit codes mean."""

from __future__ import annotations

_CODES = {
    0: "done",
    1: "something failed: what and where is said",
    2: "config or usage",
    3: "batches are open, or another run is at work on a shard",
    130: "interrupted",
}
_DOCTOR = {0: "nothing is in the way (there may be warnings)", 1: "there is a problem", 2: "config or usage"}

_EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "": (
        ("init", "a config and a Dagster instance to begin with"),
        ("doctor", "what would keep a run from working, and the remedy"),
        ("run", "caption everything that is missing or out of date"),
        ("run photos --shards A..B", "these shards only"),
        ("status", "what is done, what failed"),
        ("retry photos --reason refusal", "ask again for what was refused"),
    ),
    "init": (
        ("init", "keeps what is there; can be repeated"),
        ("--config jobs/photos.yaml init", "another config"),
        ("init --postgres", "Dagster's records at $DAGSTER_POSTGRES_URL"),
    ),
    "doctor": (
        ("doctor", "a table, and what to do"),
        ("doctor --json", "for programs"),
        ("doctor --port 3001", "the port that Dagster's web server is to have"),
    ),
    "plan": (
        ("plan photos", "what is new becomes further shards"),
        ("plan photos --accept-changed shards/00012.tar", "this file was replaced, and that is right"),
    ),
    "run": (
        ("run", "everything, one dataset after the other"),
        ("run photos --shards shard-00010..shard-00019", "a range in plan order, inclusive"),
        ("run photos --shards shard-00003,shard-00007", "these"),
        ("run --dry-run", "what it would ask: requests, tokens, bytes, hours"),
    ),
    "retry": (
        ("retry photos", "whatever may be better the next time"),
        ("retry photos --reason refusal --reason too_short", "for these reasons"),
        ("retry photos --shards shard-00003", "in this shard"),
    ),
    "status": (
        ("status", "a table over all datasets"),
        ("status --watch", "again every few seconds, with rates and ETA; Ctrl-C ends it"),
        ("status --json", "for programs"),
    ),
    "reconcile": (
        ("reconcile", "all datasets"),
        ("reconcile photos", "after files were lost, brought back or copied"),
    ),
    "clean": (("clean --dry-run", "what would go"), ("clean", "away with it")),
    "export": (
        ("export photos --format webdataset --to out/photos", "pictures with captions, as tars"),
        ("export photos --format parquet --to s3://bucket/out", "one file per shard"),
        ("export photos --format csv --to out --min-chars 40 --unique", "a selection"),
        ("export photos --to out/photos --verify", "reads it back"),
    ),
    "engine": (("engine status", "which servers run"), ("engine stop", "stop them now")),
    "engine status": (("engine status", "model, address, how long it has been idle"),),
    "engine stop": (("engine stop", "frees their memory at once"),),
}
_MAY_END_WITH: dict[str, tuple[int, ...]] = {
    "": (0, 1, 2, 3, 130),
    "run": (0, 1, 2, 3, 130),
    "retry": (0, 1, 2, 3, 130),
    "engine": (0, 1, 2),
    "engine status": (0, 1, 2),
    "engine stop": (0, 1, 2),
}


def epilog(command: str = "") -> str:
    """Examples and exit codes of a command, `engine stop` for a subcommand, "" for the whole program, in click's markup."""
    examples = [(f"caption-assets {words}", what) for words, what in _EXAMPLES[command]]
    width = max(len(words) for words, _ in examples) + 2
    meanings = _DOCTOR if command == "doctor" else {code: _CODES[code] for code in _MAY_END_WITH.get(command, (0, 1, 2, 130))}
    return "\n".join((
        "\b", "Examples:", *(f"  {words:<{width}}{what}" for words, what in examples), "",
        "\b", "Exit codes:", *(f"  {code:<5}{what}" for code, what in meanings.items()),
    ))  # fmt: skip

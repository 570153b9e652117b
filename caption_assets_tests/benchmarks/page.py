"""docs/benchmarks.md and its plots, from docs/benchmarks.json: `python -m caption_assets_tests.benchmarks.page`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from caption_assets_tests.benchmarks.reporting import show

RESULTS, PAGE = "benchmarks.json", "benchmarks.md"
RATIOS, PEERS = "images/benchmarks-ratios.png", "images/benchmarks-peers.png"
MODULE = "python -m caption_assets_tests.benchmarks"

Entry = dict[str, Any]

HEAD = f"""\
# Benchmarks

Made by `{MODULE}` (or `make bench`; `--full` for the sizes that the targets are meant for) from
`benchmarks.json`; each row's own command is `{MODULE}.` and what the last column says. CPU times are
those of all threads; medians, with half the range of the runs as spread. The obvious way and the floor were measured in the same
run, in turns, so their ratios mean more than the figures: the machine's speed cancels out.
"""
PEERS_TEXT = """\
Other programs' figures were measured on another day, on a shared machine of two cores, with the same kind of pictures and an
instant endpoint where one is asked: good for the order of magnitude, not for the last tenth.
"""


def write(docs: Path) -> None:
    """Writes the page and the plots into the folder of documents."""
    said = json.loads((docs / RESULTS).read_text())
    entries: dict[str, Entry] = said["benchmarks"]
    figures = [(entry, figure) for entry in entries.values() for figure in entry["figures"]]
    (docs / "images").mkdir(exist_ok=True)
    plots = []
    if ratio_plot([figure for _, figure in figures], docs / RATIOS):
        plots.append(f"![Ours against the obvious way and the floor]({RATIOS})\n")
    if peers := [(figure, peer, theirs) for _, figure in figures for peer, theirs in figure["peers"].items()]:
        peer_plot([figure for _, figure in figures if figure["peers"]], docs / PEERS)
        plots.append(f"![Ours against other programs]({PEERS})\n")
    parts = [HEAD, _machine(said["machine"], list(entries.values())), _shortfalls(entries), *plots, _table(figures)]
    if peers:
        rows = [
            [f["name"], f["unit"], _ours(f), f"{peer}: {show(theirs)}", show(f["ours"] / theirs)] for f, peer, theirs in peers
        ]
        parts += ["## Other programs\n", PEERS_TEXT, _rows(["figure", "unit", "ours", "theirs", "ours to theirs"], rows)]
    parts += ["## Runs\n", _runs(entries)]
    (docs / PAGE).write_text("\n".join(parts))


def _machine(machine: dict[str, Any], entries: Sequence[Entry]) -> str:
    loads = [load for entry in entries for load in entry["load"]]
    dates = sorted(entry["ended"][:10] for entry in entries)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{when}, on {machine['cpu'].strip()} with {machine['cores']} cores and {machine['memory_gb']} GB; {machine['system']}; "
        f"load average {min(loads):.1f} to {max(loads):.1f}.\nPython {machine['python']}, {versions}.\n"
    )


def _shortfalls(entries: dict[str, Entry]) -> str:
    """What does not do what it should."""
    lines = [f"* `{name}` {entry['outcome']}" for name, entry in entries.items() if entry["outcome"] != "ok"]
    for entry in entries.values():
        missed = [figure for figure in entry["figures"] if figure["met"] is False]
        lines += [f"* {f['name']}: {_ours(f)} {f['unit']}, wanted {f['target']}{_ratios(f)}" for f in missed]
    measured = [figure["met"] for entry in entries.values() for figure in entry["figures"] if figure["met"] is not None]
    head = f"{sum(measured)} of {len(measured)} targets are met."
    return "\n".join([head + (" What falls short:" if lines else ""), "", *lines, ""])


def _ratios(figure: dict[str, Any]) -> str:
    parts = [f"{show(figure[f'ratio_{to}'])} of {of}" for to, of in (("obvious", "the obvious way"), ("floor", "the floor"))
             if figure[f"ratio_{to}"] is not None]  # fmt: skip
    return f" ({', '.join(parts)})" if parts else ""


def _ours(figure: dict[str, Any]) -> str:
    spread = figure["spread"]
    if not spread or not figure["ours"]:
        return show(figure["ours"])
    return f"{show(figure['ours'])} ± {(spread[1] - spread[0]) / 2 / abs(figure['ours']):.0%}"


def _table(figures: Sequence[tuple[Entry, dict[str, Any]]]) -> str:
    rows = []
    for entry, figure in figures:
        beside = []
        for to in ("obvious", "floor"):
            value, ratio = figure[to], figure[f"ratio_{to}"]
            beside.append("" if value is None else f"{show(value)} ({figure[f'{to}_way']}): {show(ratio)} times")
        met = {True: "yes", False: "**no**", None: ""}[figure["met"]]
        name = figure["name"] + (f" ({figure['note']})" if figure["note"] else "")
        rows.append([name, f"{_ours(figure)} {figure['unit']}", *beside, figure["target"], met, f"`{entry['command']}`"])
    return _rows(["figure", "ours", "obvious way: ours to it", "floor: ours to it", "target", "met", "command"], rows)


def _runs(entries: dict[str, Entry]) -> str:
    rows = [
        [f"`{entry['command']}`", entry["outcome"], entry["ended"], f"{entry['seconds']:.0f}", "{} to {}".format(*entry["load"])]
        for entry in entries.values()
    ]
    return _rows(["command", "outcome", "ended (UTC)", "seconds", "load average"], rows)


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def ratio_plot(figures: Sequence[dict[str, Any]], path: Path) -> bool:
    """Ours over the obvious way, and over the floor, with the targets, of figures of which less is better; False where there are
    none."""
    plt = _pyplot()
    columns = [(to, [f for f in figures if f[f"ratio_{to}"] and not f["unit"].endswith("/s")]) for to in ("obvious", "floor")]
    columns = [(to, shown) for to, shown in columns if shown]
    if not columns:
        return False
    height = 1.2 + 0.3 * max(len(shown) for _, shown in columns)
    _, axes = plt.subplots(1, len(columns), figsize=(7 * len(columns), height), squeeze=False)
    for axis, (to, shown) in zip(axes[0], columns, strict=True):
        ratios, targets = [f[f"ratio_{to}"] for f in shown], [f[f"of_{to}"] for f in shown]
        colours = ["#c0392b" if f["met"] is False and f[f"of_{to}"] else "#2c7fb8" for f in shown]
        places = range(len(shown))
        axis.barh(places, [ratio - 1 for ratio in ratios], left=1, color=colours, height=0.6)
        for place, target in zip(places, targets, strict=True):
            if target:
                axis.plot([target] * 2, [place - 0.4, place + 0.4], color="black", linewidth=2)
        for place, ratio in zip(places, ratios, strict=True):
            axis.text(max(1, ratio, targets[place] or 0), place, f" {show(ratio)}", va="center", fontsize=8)
        axis.axvline(1, color="grey", linewidth=1)
        axis.set_xscale("log")
        axis.set_xticks([0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50], labels=["0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "50"])
        axis.minorticks_off()
        axis.set_xlim(min(0.9, *ratios) / 1.3, max(1.1, *ratios, *filter(None, targets)) * 1.6)
        axis.set_yticks(list(places), [f["name"] for f in shown], fontsize=8)
        axis.invert_yaxis()
        axis.set_title(f"ours / {'the obvious way' if to == 'obvious' else 'the floor'} (black: target)", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    plt.tight_layout()
    plt.savefig(path, dpi=100)
    plt.close()
    return True


def peer_plot(figures: Sequence[dict[str, Any]], path: Path) -> None:
    """Ours, what it was measured against, and other programs' figures, one panel a figure."""
    plt = _pyplot()
    panels = []
    for figure in figures:
        bars = [("ours", figure["ours"], "#2c7fb8")]
        bars += [(figure[f"{to}_way"], figure[to], "#bbbbbb") for to in ("obvious", "floor") if figure[to] is not None]
        panels.append((figure, [*bars, *((peer, theirs, "#e6a23c") for peer, theirs in figure["peers"].items())]))
    sizes = [len(bars) for _, bars in panels]
    _, axes = plt.subplots(
        len(panels), 1, figsize=(9, 0.35 * sum(sizes) + 0.8 * len(panels)), squeeze=False, gridspec_kw={"height_ratios": sizes}
    )
    for axis, (figure, bars) in zip(axes[:, 0], panels, strict=True):
        axis.barh([name for name, _, _ in bars], [value for _, value, _ in bars], color=[colour for _, _, colour in bars])
        for place, (_, value, _) in enumerate(bars):
            axis.text(value, place, f" {show(value)}", va="center", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.margins(x=0.12)
        axis.invert_yaxis()
        axis.set_title(f"{figure['name']}, {figure['unit']}", fontsize=9, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
    plt.tight_layout()
    plt.savefig(path, dpi=100)
    plt.close()


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


if __name__ == "__main__":
    write(Path(__file__).parents[2] / "docs")

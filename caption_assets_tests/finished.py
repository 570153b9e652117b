"""A project with everything done, made once for all tests. Those that change it work on a copy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from caption_assets_tests.project import Project, make_project
from caption_assets_tests.stubs.openai_server import StubServer


@dataclass
class Finished:
    """Two shards of four pictures; 0003.png is empty. said: by the run that made it; stub: its endpoint, also of copies."""

    project: Project
    stub: StubServer
    said: str

    def copy(self, folder: Path) -> Project:
        """The project under another path, with the same source, and with Dagster's records."""
        shutil.copytree(self.project.folder, folder)
        copy = Project(folder, {**self.project.config, "datasets": [dict(self.project.config["datasets"][0])]})
        copy.write(source=f"{self.project.folder}/photos/")
        return copy


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    with StubServer() as stub:
        project = make_project(tmp_path_factory.mktemp("finished"), stub.url)
        (project.folder / "photos" / "0003.png").write_bytes(b"")
        yield Finished(project, stub, project.command("run"))

"""The process that writes tars for `write_shards`: samples come in through a pipe, reports go back; it ends with the pipe."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from caption_assets.core.exports.tarfiles import Contents, Sample, TarReport, write_tar
from caption_assets.core.objectstore import ObjectStore, scratch_dir

if TYPE_CHECKING:
    from caption_assets.config import S3Config


@dataclass(frozen=True)
class Setup:
    """What a writer of tars needs to know. folder: ends in a slash; contents: makes the Contents, importable by name."""

    folder: str
    fingerprint: str | None
    s3: S3Config | None
    contents: Callable[[], Contents]

    def receipt(self, name: str) -> str:
        """Where it says what is in a finished tar."""
        return f"{self.folder}.export/{name}.json"


def finish_tar(objects: ObjectStore, setup: Setup, name: str, samples: Iterable[Sample], contents: Contents) -> TarReport:
    """Writes and publishes one tar, then its receipt."""
    local = "://" not in setup.folder
    if local:
        os.makedirs(setup.folder, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=temporary(name), dir=setup.folder if local else scratch_dir()) as scratch:
        path = Path(scratch) / "tar"
        report = write_tar(path, name, samples, contents)
        objects.put_file(f"{setup.folder}{name}", path)
    objects.put(setup.receipt(name), json.dumps({**asdict(report), "fingerprint": setup.fingerprint}).encode())
    return report


def temporary(name: str) -> str:
    """Beginning of the names of hidden folders in which a tar is written."""
    return f".caption-assets-{name}."


def _work(pipe: Connection) -> None:
    """Messages: a Setup, then for each tar its name, lists of samples, None. Answers: a TarReport each, or an Exception."""
    setup: Setup = pipe.recv()
    objects, contents = ObjectStore(setup.s3), setup.contents()

    def samples() -> Iterator[Sample]:
        while (batch := pipe.recv()) is not None:
            yield from batch

    while (name := pipe.recv()) is not None:
        pipe.send(finish_tar(objects, setup, name, samples(), contents))


def main() -> None:
    pipe = Connection(int(sys.argv[1]))
    try:
        _work(pipe)
    except (EOFError, ConnectionError, KeyboardInterrupt):
        sys.exit(130)  # whoever started this process is gone, or ends
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()

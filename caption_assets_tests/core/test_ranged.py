"""Files over ranged reads: the right bytes, in few requests."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from caption_assets.core.objectstore import ObjectMissing, ObjectStore
from caption_assets.core.storage import ranged
from caption_assets.core.storage.ranged import RangedFile
from caption_assets.core.tables import open_parquet
from caption_assets_tests.stubs.s3_server import FakeS3


def test_any_sequence_of_reads_gives_what_a_file_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranged, "AHEAD", 400)
    monkeypatch.setattr(ranged, "TAIL", 100)
    data = os.urandom(5000)
    (tmp_path / "x").write_bytes(data)
    rng = random.Random(1)
    ours, plain = RangedFile(ObjectStore(), str(tmp_path / "x")), io.BytesIO(data)
    for _ in range(2000):
        place, whence = rng.choice([(rng.randrange(6000), 0), (-rng.randrange(300), 2), (rng.randrange(50), 1)])
        assert ours.seek(place, whence) == plain.seek(place, whence)
        size = rng.choice([-1, 0, 1, 10, 100, 390, 400, 410, 2000])
        assert ours.read(size) == plain.read(size)
        assert ours.tell() == plain.tell()


def test_a_parquet_file_in_s3_is_read_in_few_requests(s3_keys: None) -> None:
    sink = io.BytesIO()
    columns = {f"c{n}": [f"{n}-{row}" for row in range(20_000)] for n in range(14)}
    pq.write_table(pa.table(columns), sink, row_group_size=5_000)
    with FakeS3({"t.parquet": sink.getvalue()}) as s3:
        with open_parquet(s3.store(), "s3://cases/t.parquet") as file:
            assert file.read().num_rows == 20_000
        assert len(s3.asked("GET")) <= 3
        with pytest.raises(ObjectMissing):
            open_parquet(s3.store(), "s3://cases/nope.parquet")

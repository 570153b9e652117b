"""txt and json: one small file per picture, in a mirror of the pictures' folders or beside copies of the pictures."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from caption_assets.core.exports.job import ShardJob
from caption_assets.core.exports.names import extension, mirror_path, sample_key, stem


def write(job: ShardJob, suffix: str) -> None:
    """In the mirror: `cats/001.txt` for `cats/001.jpg`, but `cats/001.jpg.txt` where pictures share a stem. Beside copies:
    `{key}.jpg` and `{key}.txt`. A member of a tar has the tar's path as its folder, a line of a catalog is `{catalog}/{line}`."""

    def content(row: dict[str, Any]) -> bytes:
        return job.caption(row).encode() if suffix == "txt" else job.as_json(row)

    if job.options.pictures:
        for row, data in job.rows_with_pictures():
            key = sample_key(row["record_id"])
            job.target.put(f"{key}.{extension(row['format'])}", data)
            job.target.put(f"{key}.{suffix}", content(row), 1)
        return
    shared, files = _Shared(job), job.shared_stems()
    for row in job.rows():
        path = mirror_path(row["record_id"], row["source_uri"])
        whole = stem(row["source_uri"]) in files or path in shared
        job.target.put(f"{path if whole else stem(path)}.{suffix}", content(row), 1)


class _Shared:
    """Whether another record of the shard, captioned or not, has a path's stem. Holds 8 bytes of each."""

    def __init__(self, job: ShardJob) -> None:
        seen: set[bytes] = set()
        self._twice: set[bytes] = set()
        for batch in job.manifest.batches(job.objects, ["record_id", "source_uri"]):
            for record_id, source_uri in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                path = mirror_path(record_id, source_uri)
                for key in {_key(path), _key(stem(path))}:
                    (self._twice if key in seen else seen).add(key)

    def __contains__(self, path: str) -> bool:
        return _key(stem(path)) in self._twice


def _key(path: str) -> bytes:
    return blake2b(path.encode(), digest_size=8).digest()

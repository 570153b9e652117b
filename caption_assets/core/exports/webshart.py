"""webshart: for each tar of the source an index of the captioned pictures in it, with their sizes and `captions`.

Nothing is copied: webshart reads the tars where they lie and takes these files as their metadata.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import orjson

from caption_assets.core.exports.job import ShardJob
from caption_assets.core.exports.names import safe_path, split_record
from caption_assets.core.exports.selection import ExportError


def write(job: ShardJob) -> None:
    """`{path of the tar}` with `.json` for `.tar`. captions: the text, or where there are several outputs a list."""
    for source, group in groupby(job.rows_with_places(), lambda pair: str(pair[0]["source_uri"])):
        if not source.endswith(".tar"):
            raise ExportError(f"{source} is no plain tar: webshart describes such only; export as webdataset instead")
        files: dict[str, dict[str, Any]] = {}
        path = ""
        for row, picture in group:
            path, member = split_record(row["record_id"], source)
            texts = [row[name] for name in job.outputs if row[name] is not None]
            files[str(member)] = {
                "offset": picture.ref.byte_offset,
                "length": picture.ref.byte_length,
                "sha256": row["sha256"],
                "width": row["width"],
                "height": row["height"],
                "aspect": row["width"] / row["height"],
                "captions": texts[0] if len(job.outputs) == 1 else texts,
            }
        index = {"path": path, "filesize": job.objects.head(source).size, "includes_image_geometry": True, "files": files}
        job.target.put(f"{safe_path(path.removesuffix('.tar'))}.json", orjson.dumps(index), len(files))

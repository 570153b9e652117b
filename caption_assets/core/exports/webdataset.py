"""WebDataset: tars of samples, each a picture with its own bytes, its caption as `.txt`, and everything else as `.json`."""

from __future__ import annotations

from collections.abc import Iterator

from caption_assets.core.exports.job import ShardJob
from caption_assets.core.exports.names import extension, sample_key
from caption_assets.core.exports.tarfiles import Sample
from caption_assets.core.exports.tarwriting import write_shards


def write(job: ShardJob) -> None:
    """`{shard}-00000.tar` and on; keys as in names.sample_key, in the order of merged."""

    def samples() -> Iterator[Sample]:
        for row, picture in job.rows_with_places():
            files = {extension(row["format"]): picture, "txt": job.caption(row).encode(), "json": job.as_json(row)}
            yield Sample(sample_key(row["record_id"]), files)

    options = job.options
    reports = write_shards(
        samples(),
        job.target.folder,
        job.shard,
        maxcount=options.maxcount,
        maxsize=options.maxsize,
        processes=options.processes if job.merged.rows > options.maxcount else 1,
        fingerprint=job.fingerprint,
        contents=job.contents(),
        s3=job.objects.s3,
    )
    for report in reports:
        job.target.add(report.name, report.bytes, report.sha256, report.records)
        job.target.left_out += report.left_out

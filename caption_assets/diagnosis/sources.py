"""Whether a dataset's source can be read: credentials, a bounded listing, the first file, the first pictures."""

from __future__ import annotations

from collections.abc import Iterator

from caption_assets.config import Config, DatasetConfig
from caption_assets.core.layout import Layout
from caption_assets.core.objectstore import ObjectError
from caption_assets.core.plan.plans import PlanError
from caption_assets.core.report.text import plural
from caption_assets.core.storage import credentials
from caption_assets.core.storage.s3faults import split
from caption_assets.diagnosis.findings import Finding, size
from caption_assets.diagnosis.glimpse import Glimpse, look


def bucket_uses(config: Config) -> dict[str, list[str]]:
    """Every bucket that the config names, and who needs it: a dataset, or the store."""
    uses: dict[str, list[str]] = {}
    if config.store.startswith("s3://"):
        uses.setdefault(split(config.store)[0], []).append("store")
    for spec in config.datasets:
        buckets = [split(source)[0] for source in spec.source if source.startswith("s3://")]
        for bucket in dict.fromkeys([*buckets, *spec.images.s3_buckets]):
            uses.setdefault(bucket, []).append(spec.name)
    return uses


def credentials_of(config: Config, bucket: str) -> Iterator[Finding]:
    """Where the credentials of one bucket come from; never what they are."""
    settings, of = config.s3.for_bucket(bucket), f"s3://{bucket}"
    if settings.anonymous:
        yield Finding("ok", "credentials", of, "none are used: s3.anonymous")
        return
    session = credentials.session(settings)
    if credentials.frozen(session) is None:
        yield Finding(
            "problem", "credentials", of, "none were found",
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or s3.profile; for a public bucket s3.anonymous: true",
        )  # fmt: skip
        return
    found = session.get_credentials()
    yield Finding("ok", "credentials", of, f"found ({found.method if found else 'unknown'})")


def source(config: Config, spec: DatasetConfig, seen: dict[str, Glimpse]) -> Iterator[Finding]:
    """What the source holds, as far as a bounded look tells. seen: gets the glimpse, for whoever estimates sizes."""
    where = f"datasets.{spec.name}.source"
    try:
        glimpse = look(config.s3, Layout(config.store, spec.name), spec)
    except PlanError as error:
        yield Finding("problem", "source", spec.name, str(error), f"set {where} to what holds the pictures")
        return
    except ObjectError as error:
        remedy = f"look at {where}, the s3 settings and the credentials"
        yield Finding("problem", "source", spec.name, str(error), remedy)
        return
    if glimpse.first is None:
        yield Finding(
            "problem", "source", spec.name, f"holds no {' or '.join(glimpse.kinds)} files", f"look at {where} and format"
        )
        return
    seen[spec.name] = glimpse
    amount = f"{'more than ' * glimpse.more}{plural(glimpse.files, 'file')} ({', '.join(glimpse.kinds)}), {size(glimpse.bytes)}"
    records = glimpse.all_records
    yield Finding("ok", "source", spec.name, amount + (f", about {records:,} records" if records else ""))
    yield _first_file(spec, glimpse, glimpse.first.uri)


def _first_file(spec: DatasetConfig, glimpse: Glimpse, uri: str) -> Finding:
    if not glimpse.records:
        return Finding("warning", "first file", spec.name, f"{uri}: has no records", "the others may have some: run and see")
    readable = glimpse.looked_at - len(glimpse.faults)
    said = f"{uri}: {readable} of the first {glimpse.looked_at} pictures can be read and decoded"
    if not glimpse.faults:
        return Finding("ok", "first file", spec.name, said)
    all_bad = len(glimpse.faults) == glimpse.looked_at
    catalog = glimpse.kinds != ["images"] and glimpse.kinds != ["webdataset"]
    remedy = "fields.uri, images.local_roots, images.s3_buckets and images.http say where pictures may lie" if catalog else ""
    if glimpse.missing_libraries:
        remedy = "install the library that is named"
    said = f"{said}; {glimpse.faults[0]}"
    return Finding("problem" if all_bad else "warning", "first file", spec.name, said, remedy or "look at these files")

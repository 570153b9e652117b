"""Where a catalog's text may point to. Everything else is refused before anything is read."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from dataclasses import dataclass

from caption_assets.config import DatasetConfig
from caption_assets.core.faults import PictureFault
from caption_assets.core.sources.listing import source_root
from caption_assets.core.storage.localstore import address, native_path

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_OPAQUE = re.compile(r"(data|file|blob|javascript|mailto):", re.IGNORECASE)


@dataclass(frozen=True)
class Address:
    """kind: object (any store) or http. uris: where to look, in turn."""

    kind: str
    uris: tuple[str, ...]


class AddressRules:
    """The rules of one dataset: its sources, images.local_roots, images.s3_buckets, images.http."""

    def __init__(self, spec: DatasetConfig) -> None:
        self._spec = spec
        local = [_root(source) for source in spec.source if "://" not in source] + list(spec.images.local_roots)
        self._local = tuple(address(os.path.realpath(native_path(root))) for root in local)
        self._buckets = {*map(_bucket, spec.source), *spec.images.s3_buckets} - {""}

    def resolve(self, text: str, catalog: str) -> Address:
        """Where the picture lies that the row of `catalog` names as `text`. PictureFault for what is refused.

        A relative text counts from the catalog's folder, and where nothing lies there, from the source's root.
        """
        scheme = _SCHEME.match(text)
        if scheme is None and _OPAQUE.match(text):
            raise PictureFault("unsupported_uri", f"{text[:200]}: is no path, s3:// or http(s):// address")
        if scheme is None:
            return self._path(text, catalog)
        name = scheme[1].lower()
        if name in ("http", "https"):
            if not self._spec.images.http:
                raise PictureFault("forbidden_address", f"{text[:200]}: http is off (images.http)")
            return Address("http", (text,))
        if name == "s3":
            return self._s3(f"s3://{text[scheme.end() :]}")
        if name == "hf" and any(text.startswith(_root(source)) for source in self._spec.source if source.startswith("hf://")):
            return Address("object", (text,))
        raise PictureFault("forbidden_address" if name == "hf" else "unsupported_uri", f"{text[:200]}: {name}:// is not read")

    def _s3(self, uri: str) -> Address:
        if _bucket(uri) not in self._buckets:
            raise PictureFault("forbidden_address", f"{uri[:200]}: the bucket is not in images.s3_buckets")
        if uri.endswith("/") or uri.count("/") < 3:
            raise PictureFault("not_a_file", f"{uri[:200]}: is a folder")
        return Address("object", (uri,))

    def _path(self, text: str, catalog: str) -> Address:
        folders = [catalog[: catalog.rfind("/") + 1]]
        root = next((root for source in self._spec.source if (root := source_root(source, catalog))), None)
        if root and root not in folders:
            folders.append(root)
        if text.startswith("/"):
            if "://" in catalog:
                raise PictureFault("forbidden_address", f"{text[:200]}: a catalog in a store cannot point to local files")
            folders = [""]
        find = _below if "://" in catalog else self._local_file
        uris = [find(folders[0], text)]
        for folder in folders[1:]:
            with contextlib.suppress(PictureFault):
                uris.append(find(folder, text))
        return Address("object", tuple(uris))

    def _local_file(self, folder: str, text: str) -> str:
        """The real path, links followed, which must be below a root that is allowed."""
        path = folder + text
        try:
            real = address(os.path.realpath(native_path(path)))
        except (OSError, ValueError):
            raise PictureFault("missing_image", f"{path[:200]!r}: is no file name") from None
        if not any(real == root or real.startswith(root.rstrip("/") + "/") for root in self._local):
            raise PictureFault("forbidden_address", f"{path[:200]}: lies outside of the source's folder and images.local_roots")
        return real + "/" if path.endswith("/") else real  # a slash at the end means a folder


def _below(folder: str, text: str) -> str:
    """A relative address in a store: literal, but for steps `.` and `..`, which must stay within the bucket."""
    if not any(step in (".", "..") for step in text.split("/")):
        return folder + text
    scheme, _, rest = folder.partition("://")
    bucket, _, path = rest.partition("/")
    joined = posixpath.normpath(path + text)
    if joined.split("/")[0] == "..":
        raise PictureFault("forbidden_address", f"{text[:200]}: leads out of the bucket")
    return f"{scheme}://{bucket}/{joined}"


def _bucket(uri: str) -> str:
    return uri[5:].split("/", 1)[0] if uri.startswith("s3://") else ""


def _root(source: str) -> str:
    """The folder of a source, whether it is a folder, a file or a glob."""
    if source.endswith("/") or ("://" not in source and os.path.isdir(source)):
        return source
    before = re.split(r"[*?\[]", source, maxsplit=1)[0]
    return before[: before.rfind("/") + 1]

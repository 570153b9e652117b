"""What a name says: which format a file has, which sample a member belongs to, what is no record at all. Pure functions."""

from __future__ import annotations

import re

IMAGE_EXTENSIONS = frozenset((
    "jpg", "jpeg", "jpe", "jfif", "png", "apng", "webp", "bmp", "dib", "gif", "tif", "tiff", "heic", "heif", "hif", "avif",
    "jxl", "jp2", "j2k", "jpx", "jxr", "svg", "psd", "ico", "tga", "ppm", "pgm", "pbm", "pnm", "exr", "dng", "cr2", "cr3",
    "nef", "arw", "orf", "raf", "rw2", "qoi", "dds", "pcx",
))  # fmt: skip
"""Names of pictures. Whether such a file can be read is told from its bytes, later."""

SIDECAR_EXTENSIONS = frozenset(("txt", "json"))
CONTENT_EXTENSIONS = frozenset((*SIDECAR_EXTENSIONS, "text", "caption", "cls"))
"""Members of a tar whose text becomes a field of the record."""

_COMPRESSIONS = ("", ".gz", ".zst", ".zstd", ".bz2", ".xz", ".lzma", ".lz4", ".br", ".z")
_TAR = (*(f".tar{c}" for c in _COMPRESSIONS), ".tgz", ".tzst", ".tbz", ".tbz2", ".txz", ".tlz")
_JSONL = tuple(f".{name}{c}" for name in ("jsonl", "ndjson", "jsonlines", "jl") for c in _COMPRESSIONS)
_PARQUET = (".parquet", ".parq", ".pq")
_JUNK = frozenset((".ds_store", "thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", ".appledouble", "@eadir"))
_JUNK_FOLDER = re.compile(r"(?:^|/)(?:__MACOSX|\.AppleDouble|@eaDir)/")
_NAME_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,40}\Z")


def is_junk(path: str) -> bool:
    """What systems leave behind: `._` files, .DS_Store, Thumbs.db, what is in __MACOSX and the like, folder entries."""
    name = path.rsplit("/", 1)[-1]
    return not name or name.startswith("._") or name.lower() in _JUNK or _JUNK_FOLDER.search(path) is not None


def extension(path: str) -> str:
    """The last extension in lower case, without the dot; empty where there is none."""
    name = path.rsplit("/", 1)[-1].lstrip(".")
    return name.rpartition(".")[2].lower() if "." in name else ""


def kind_of(path: str) -> str | None:
    """webdataset, jsonl, parquet, images, or sidecar; None where the name does not say."""
    name = path.rsplit("/", 1)[-1].lower()
    ending = extension(name)
    if ending in IMAGE_EXTENSIONS:
        return "images"
    if ending in SIDECAR_EXTENSIONS:
        return "sidecar"
    for kind, endings in (("webdataset", _TAR), ("jsonl", _JSONL), ("parquet", _PARQUET)):
        if name.endswith(endings):
            return kind
    return None


def tar_stem(path: str) -> str:
    """The file name of a tar without what says that it is one."""
    name = path.rsplit("/", 1)[-1]
    ending = next((e for e in sorted(_TAR, key=len, reverse=True) if name.lower().endswith(e)), "")
    return name[: len(name) - len(ending)] if ending else name.rpartition(".")[0] or name


def sample_key(member: str) -> tuple[str, str]:
    """The key of a member's sample and its field name in it: `a/s7.input.jpg` is (`a/s7`, `input.jpg`).

    As in WebDataset the field begins at the first dot of the base name, but dots that belong to the name stay in the key:
    `22.05.png` is (`22.05`, `png`), `Track 2.0 (Clean).json` is (`Track 2.0 (Clean)`, `json`). Fields begin with a letter.
    """
    folder, slash, base = member.rpartition("/")
    if base.count(".") == 1 and base[0] != ".":
        key, _, name = member.rpartition(".")
        return key.removeprefix("./"), name.lower()
    parts = base.lstrip(".").split(".")
    dots = base[: len(base) - len(base.lstrip("."))]
    first = len(parts)
    if len(parts) > 1:
        first -= 1
        while first > 1 and _NAME_PART.match(parts[first - 1]):
            first -= 1
    return f"{folder}{slash}{dots}{'.'.join(parts[:first])}".removeprefix("./"), ".".join(parts[first:]).lower()


def stem(path: str) -> str:
    """The path without its last extension."""
    folder, slash, base = path.rpartition("/")
    return f"{folder}{slash}{base.rpartition('.')[0] or base}"


def safe_text(text: str) -> str:
    """The same text as valid UTF-8: a lone surrogate becomes the six characters `\\ud83d`, and distinct texts stay so."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()

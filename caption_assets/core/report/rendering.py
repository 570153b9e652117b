"""Templates to pages: one HTML file that loads nothing from anywhere, and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from caption_assets import __version__
from caption_assets.core.report import text

TEMPLATES = "templates"


def render(template: str, **values: Any) -> bytes:
    """The finished page."""
    css, script = _asset("report.css"), _asset("report.js")
    policy = "; ".join(
        (
            "default-src 'none'",
            "img-src data:",
            f"style-src '{_hash(css)}'",
            f"script-src '{_hash(script)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    page = _environment().get_template(template)
    return page.render(css=Markup(css), script=Markup(script), policy=policy, program=__version__, **values).encode()  # noqa: S704


@cache
def form() -> str:
    """A hash of everything that makes a page look as it does: pages of another form are made anew."""
    digest = hashlib.sha256(__version__.encode())
    for file in sorted(files(__package__).joinpath(TEMPLATES).iterdir(), key=lambda entry: entry.name):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:8]


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(str(__package__), TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=text.finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for show in (text.number, text.brief, text.share, text.duration, text.plural, text.setting):
        environment.filters[show.__name__] = show
    return environment


@cache
def _asset(name: str) -> str:
    """A file of our own that is put into the page as it is."""
    return files(__package__).joinpath(TEMPLATES, name).read_text("utf-8")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()

"""A headless Chromium for the tests that need one: pages as people see them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT_MS = 120_000
"""Generous: nothing waits for it on an idle machine."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise RuntimeError("this needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=TIMEOUT_MS)
        try:
            yield browser
        finally:
            browser.close()


def new_page(browser: Browser, width: int = 1400, height: int = 900) -> Page:
    page = browser.new_context(viewport={"width": width, "height": height}).new_page()
    page.set_default_timeout(TIMEOUT_MS)
    return page


def launch_backfill(page: Page, url: str, job: str, shards: Sequence[str] = (), preset: str | None = None) -> None:
    """Clicks a backfill of a job in Dagster's UI: of these shards, or of a preset (Missing, Failed, All)."""
    page.goto(f"{url}/locations/caption_assets/jobs/{job}")
    page.get_by_role("button", name="Materialize all").first.click()
    if preset:
        page.get_by_role("button", name=preset, exact=True).click()
    else:
        page.get_by_text("Select a partition or create one").click()
        for shard in shards:
            page.get_by_role("menuitem", name=shard).click()
        page.keyboard.press("Escape")
        page.get_by_text(f"{len(shards)} partition").first.wait_for()
    page.get_by_role("button", name="Launch backfill").click()
    page.get_by_role("button", name="Launch backfill").wait_for(state="detached")

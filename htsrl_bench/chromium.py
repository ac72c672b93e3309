"""The system's Chromium without a window, driven by Playwright, which brings no browser of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from htsrl.errors import ConfigError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # containers often run as root, where it does not start
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium_path() -> str | None:
    """HTSRL_CHROMIUM, or the first that is installed."""
    return os.environ.get("HTSRL_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def open_chromium() -> Iterator[Browser]:
    path = chromium_path()
    if path is None:
        raise ConfigError("no Chromium is installed; `make browser` installs one, or name yours in HTSRL_CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()

"""A real browser for pages: a Chromium that is on the path, driven by playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support.programs import not_tested

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Started once for a file of tests; or no test."""
    program = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if program is None:
        not_tested("the report in a browser", "no Chromium is on the path")
    # Root, as which containers run, has no sandbox of its own.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=options)
        yield started
        started.close()

"""The documentation on a phone, in a real headless Chromium: `make test-browser` builds the site for it."""

import os

import pytest
from blocks import ROOT

from tests.report.chromium import EXECUTABLE, Chromium

SITE = ROOT / "build" / "site"
if not os.environ.get("SSL_HUB_REQUIRE_BROWSER") and (EXECUTABLE is None or not SITE.exists()):
    pytest.skip("no Chromium, or no site of `make docs`", allow_module_level=True)

PHONE = 390
BOXES = """[...document.querySelectorAll(".md-content .md-typeset__scrollwrap")].map(
    box => [box.scrollWidth, box.innerText.slice(0, 80)])"""


def test_no_page_scrolls_sideways_on_a_phone_and_no_table_is_wider_than_two():
    pages = sorted(SITE.rglob("*.html"))
    assert len(pages) > 20
    wide, tables = {}, {}
    with Chromium() as browser:
        for page in pages:
            browser.open(page, width=PHONE)
            browser.run("document.querySelectorAll('details').forEach(box => { box.open = true })")
            name = str(page.relative_to(SITE))
            if (width := browser.run("document.documentElement.scrollWidth")) > PHONE:
                wide[name] = width
            if found := [box for box in browser.run(BOXES) if box[0] > 2 * PHONE]:
                tables[name] = found
    assert (wide, tables) == ({}, {})

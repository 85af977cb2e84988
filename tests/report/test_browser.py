"""Reports opened in a real headless Chromium, Debian's for example: `make test-browser` fails where there is none."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from ssl_hub.data.images import Source
from ssl_hub.data.sources import SOURCES
from ssl_hub.data.stored import Pixels
from ssl_hub.evaluate.subject import open_model
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.report.page import SECTIONS, write_report
from tests.report.chromium import EXECUTABLE, Chromium

if EXECUTABLE is None and not os.environ.get("SSL_HUB_REQUIRE_BROWSER"):
    pytest.skip("no Chromium on this machine: apt-get install chromium", allow_module_level=True)

VISIBLE = "[...document.querySelectorAll('section')].map(s => [s.id, s.innerText.length, s.getClientRects().length])"
PAINTED = """[...document.querySelectorAll('canvas')].filter(c => c.offsetParent).map(c => {
    const pixels = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
    return pixels.some(value => value > 0) })"""
HOSTILE = (
    "</script><script>window.run = 1</script>",
    "<img src=x onerror='window.run = 1'>",
    "\"'><svg onload=window.run=1>",
    "<!--\u2028${window.run=1}`\\u003c",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


def opened(browser: Chromium, path: Path, **how: object) -> None:
    """Open a report, and hold it to what holds for each: silent, alone, every section there, every canvas painted."""
    browser.requests.clear()
    browser.complaints.clear()
    browser.open(path, **how)
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [path.resolve().as_uri()]
    found = browser.run(VISIBLE)
    assert [name for name, *_ in found] == [section.id for section in SECTIONS]
    assert all(length > 20 and boxes for _, length, boxes in found), found
    assert all(browser.run(PAINTED))
    wide = browser.run("document.documentElement.scrollWidth")
    assert wide <= how.get("width", 1280), "the page scrolls sideways"  # a phone's innerWidth grows with the page


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_a_report_opens_alone_and_complete(browser, run, tmp_path, width, dark):
    out = write_report([run], tmp_path / "report.html")
    opened(browser, out, width=width, dark=dark)
    assert browser.run("document.querySelectorAll('.uplot canvas').length") == 9
    assert browser.run("document.querySelectorAll('.missing').length") == 0
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 23, 28)" if dark else "rgb(255, 255, 255)")
    browser.run("document.getElementById('theme').click()")
    assert browser.run("getComputedStyle(document.body).backgroundColor") != ground
    assert all(browser.run(PAINTED))


def test_pointing_tells_values(browser, run, tmp_path):
    opened(browser, write_report([run], tmp_path / "report.html"))
    readout = "document.querySelector('#training .readout').innerText"
    last = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][-1]
    assert browser.run(readout).split() == ["epoch", "2", str(float(f"{last['loss']:.4g}"))]
    browser.run("document.querySelector('#training').scrollIntoView()")
    box = browser.run(
        "(r => [r.left, r.top, r.width, r.height])(document.querySelector('.u-over').getBoundingClientRect())"
    )
    middle = {"x": box[0] + box[2] / 2, "y": box[1] + box[3] / 2}
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", **middle)
    browser.run("new Promise(done => setTimeout(done, 100))")
    assert browser.run(readout).split()[:2] in (["epoch", "1"], ["epoch", "1.25"], ["epoch", "0.75"])
    browser.run("document.querySelector('#map').scrollIntoView()")
    box = browser.run(
        "(r => [r.left, r.top, r.width, r.height])(document.querySelector('.map canvas').getBoundingClientRect())"
    )
    for step in range(200):  # somewhere along the middle row there is a dot
        point = {"x": box[0] + box[2] * step / 200, "y": box[1] + box[3] / 2}
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", **point)
        if not browser.run("document.querySelector('.tip').hidden"):
            break
    shown = browser.run("document.querySelector('.tip').innerText")
    assert shown.strip()[0].isdigit() and " · " in shown
    assert browser.complaints == []


def test_toggles_hide_and_show(browser, run, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(run, other)
    opened(browser, write_report([run, other], tmp_path / "report.html"))
    rows = "[...document.querySelectorAll('.compared tbody tr')].map(row => row.getClientRects().length > 0)"
    told = "document.querySelector('#training .readout').innerText.includes('other')"
    assert (browser.run(rows), browser.run(told)) == ([True, True], True)
    browser.run("document.querySelector('[data-toggle-run=\"1\"]').click()")
    assert (browser.run(rows), browser.run(told)) == ([True, False], False)
    assert browser.run("document.querySelector('[data-toggle-run=\"1\"]').getAttribute('aria-pressed')") == "false"
    browser.run("document.querySelector('[data-toggle-run=\"1\"]').click()")
    assert (browser.run(rows), browser.run(told)) == ([True, True], True)
    for kind in ("spectrum", "views", "gallery", "map", "confusion", "recipe"):
        panels = f'[0, 1].map(i => document.querySelector(`[data-panel="{kind}-${{i}}"]`).getClientRects().length > 0)'
        assert browser.run(panels) == [True, False]
        browser.run(f"document.querySelector('[data-tab=\"{kind}-1\"]').click()")
        assert browser.run(panels) == [False, True]
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert all(browser.run(PAINTED))  # those that were hidden are drawn when they come up
    image = "document.querySelector('[data-panel=\"map-1\"] canvas').toDataURL()"
    before = browser.run(image)
    browser.run("document.querySelector('[data-panel=\"map-1\"] [data-class]').click()")
    assert browser.run(image) != before
    assert browser.complaints == []


def test_hostile_text_is_shown_and_never_run(browser, run, tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    labels = np.arange(40) % len(HOSTILE)
    pixels = Pixels(draw.integers(0, 256, (40, 16, 16, 3), dtype=np.uint8))
    source = lambda split: Source("hostile", split, pixels, classes=HOSTILE, labels=labels)  # noqa: E731
    monkeypatch.setitem(SOURCES._entries, "hostile", source)
    width = open_model(run).model.num_features
    ProbeHead(torch.randn(len(HOSTILE), width), torch.zeros(len(HOSTILE)), HOSTILE, "hostile").save(run)
    whole = json.loads((run / "recipe.json").read_text())
    whole["recipe"] |= {"name": HOSTILE[0], "summary": HOSTILE[1], "notes": HOSTILE}
    whole["run"] |= {"command": HOSTILE[0], "device": HOSTILE[1], "versions": {HOSTILE[2]: HOSTILE[3]}}
    (run / "recipe.json").write_text(json.dumps(whole))
    results = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps([r | {"dataset": HOSTILE[0], "split": HOSTILE[1]} for r in results]))
    hostile = run.rename(tmp_path / "<script>window.run = 1<")
    opened(browser, write_report([hostile], tmp_path / "report.html", data="hostile"))
    assert browser.run("window.run") is None
    assert browser.run("document.querySelectorAll('script:not([type])').length") == 2  # the package's own
    assert browser.run("document.querySelectorAll('img:not([src^=\"data:\"]), svg').length") == 0
    assert browser.run("document.querySelector('h1').textContent") == "<script>window.run = 1<"
    assert browser.run("document.querySelector('#recipe pre').textContent") == HOSTILE[0]
    names = "[...document.querySelectorAll('.confusion tbody th')].map(cell => cell.textContent)"
    assert browser.run(names) == list(HOSTILE)
    names = "[...document.querySelectorAll('[data-class]')].map(button => button.textContent)"
    assert browser.run(names) == list(HOSTILE)


def test_the_file_itself_forbids_what_it_does_not_hold(browser, run, tmp_path):
    """Were a hostile text ever to become markup, the policy of the page would still refuse it."""
    out = write_report([run], tmp_path / "report.html")
    bad = "<script>window.run = 1</script><img src='http://127.0.0.1:9/x.png' onerror='window.run = 1'></main>"
    out.write_text(out.read_text().replace("</main>", bad))
    browser.complaints.clear()
    browser.open(out)
    assert browser.run("window.run") is None
    assert sum("Content Security Policy" in said for said in browser.complaints) >= 2

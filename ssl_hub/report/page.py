"""The page: every section in order, in one file that asks nothing of the network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from ssl_hub.atomic import expanded, refuse_missing_folder, replace_file
from ssl_hub.errors import UsageError
from ssl_hub.model.files import RECIPE
from ssl_hub.model.health import THRESHOLDS
from ssl_hub.model.results import installed_versions
from ssl_hub.report import curves, facts, pictures, sweeps
from ssl_hub.report.html import Markup, element, together
from ssl_hub.report.record import read_records
from ssl_hub.report.story import Story, present, swatch
from ssl_hub.train.sweep import begun_in


class Section(NamedTuple):
    """A part of the page. ``draw`` raises Missing, with the reason, where there is nothing to show."""

    id: str
    title: str
    about: str
    draw: Callable[[Story], Markup]


SECTIONS: tuple[Section, ...] = (
    Section("results", "Results", "", facts.results),
    Section("training", "Training", "", curves.training),
    Section(
        "health",
        "Is it healthy?",
        "F is the correlation matrix E[f fᵀ] of the projections of a batch. Features that have collapsed lie along one"
        f" direction: an effective rank of 1, and a spread far below that of an even sphere. A run is {THRESHOLDS}.",
        curves.health,
    ),
    Section(
        "spectrum",
        "Spectrum of F over training",
        "Eigenvalues at the end of each epoch, evenly spaced by rank, on a logarithmic axis for F. A spectrum that"
        " keeps many of them up is one that keeps many directions.",
        curves.spectrum,
    ),
    Section("views", "What the network was shown", "", pictures.views),
    Section("gallery", "Nearest neighbours", "", pictures.gallery),
    Section("map", "Map of the features", "", pictures.feature_map),
    Section("confusion", "What the probe confuses", "", pictures.confusion),
    Section("throughput", "Throughput", "", curves.throughput),
    Section("recipe", "Recipe and command", "", facts.recipe),
)

OF_A_SWEEP = (
    Section("sweep", "Sweep", "Means over seeds with their 95 % intervals; the higher, the darker.", sweeps.measured),
    Section("left", "Not ended well", "", sweeps.left),
    Section("runs", "Runs", "", facts.compared),
    *(section for section in SECTIONS if section.id in ("training", "health", "throughput")),
)

# The file says itself that it may load nothing, and run the two scripts of this package alone.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {scripts}; base-uri 'none'"


def write_report(runs: Sequence[str | Path], out: str | Path, *, data: str | None = None) -> Path:
    """Write one HTML file about one run, about several side by side, or about a sweep; it opens without a network.

    Args:
        runs: run folders, or names in the store; one may be unfinished or damaged: the report says what is missing. Or
            the folder of one sweep, or its name.
        out: the file, which ends in ``.html``.
        data: what to show pictures of: a registered name, path or Hub dataset id; by default each run's own data.

    Raises:
        UsageError: no runs, a run that does not exist, or a file that cannot be written.
    """
    path = expanded(out)
    if path.suffix not in (".html", ".htm"):
        raise UsageError(f"a report is an HTML file, got {path.name!r}; name it {path.stem or 'report'}.html")
    refuse_missing_folder(path)
    if not runs:
        raise UsageError("a report needs at least one run: a folder, or a name in the store")
    story = _story(runs, data)
    replace_file(path, build_page(story).encode("utf-8", "replace"))
    return path


def _story(runs: Sequence[str | Path], data: str | None) -> Story:
    swept = [found for run in runs if (found := begun_in(run)) is not None]
    if not swept:
        return Story(read_records(runs), data)
    if len(runs) > 1 or data is not None:
        raise UsageError(f"{swept[0].folder} is a sweep, whose report is of it alone; leave other runs and --data out")
    begun = [task.folder for task in (*swept[0].ended, *swept[0].left) if (task.folder / RECIPE).is_file()]
    return Story(read_records(begun), sweep=swept[0])


def build_page(story: Story) -> str:
    """The whole page as text."""
    scripts = [_asset("uPlot.min.js"), _asset("report.js")]
    sections, names = SECTIONS, ", ".join(record.name for record in story.records)
    if story.sweep is not None:
        sections, names = OF_A_SWEEP, story.sweep.folder.resolve().name
    policy = POLICY.format(scripts=" ".join(_fingerprint(script) for script in scripts))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{names} · ssl_hub report"),
        element("style", Markup(_asset("uPlot.min.css")), Markup(_asset("report.css"))),
    )
    body = element(
        "body",
        _header(story, sections),
        element("main", *(_drawn(section, story) for section in sections)),
        element(
            "footer",
            element("p", f"Made by ssl_hub {installed_versions()['ssl_hub']}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."),
        ),
        *(element("script", Markup(script)) for script in scripts),
    )
    return "<!doctype html>\n" + element("html", head, body, lang="en")


def _drawn(section: Section, story: Story) -> Markup:
    body = present(lambda: section.draw(story))
    about = element("p", section.about, class_="note") if section.about else None
    return element("section", element("h2", section.title), about, body, id=section.id)


def _header(story: Story, sections: Sequence[Section]) -> Markup:
    title, summary, state = f"{len(story.records)} runs", None, None
    if (swept := story.sweep) is not None:
        title = swept.folder.resolve().name
        state = f"a sweep: {len(swept.ended)} of {len(swept.ended) + len(swept.left)} runs have ended well"
    elif not story.several:
        only = story.records[0]
        title, state, summary = only.name, only.state, None if only.recipe is None else only.recipe.summary
    problems = [
        element("li", f"{record.name}: {problem}" if story.several else problem)
        for record in story.records
        for problem in record.problems
    ]
    runs = [
        element("button", swatch(i), record.name, type="button", data_toggle_run=i, aria_pressed="true")
        for i, record in enumerate(story.records)
    ]
    links = [element("a", section.id.capitalize(), href=f"#{section.id}") for section in sections]
    return together(
        element(
            "header",
            element(
                "div", element("h1", title), element("button", "◐", type="button", id="theme", title="Light or dark")
            ),
            element("p", summary) if summary else None,
            element("p", state, class_="note") if state else None,
            element("ul", *problems, class_="missing") if problems else None,
        ),
        element(
            "nav",
            element("div", *links, class_="links"),
            element("div", *runs, class_="tabs") if story.several else None,
        ),
    )


def _asset(name: str) -> str:
    return (files("ssl_hub.report") / "assets" / name).read_text(encoding="utf-8")


def _fingerprint(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"

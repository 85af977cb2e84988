"""What ``mkdocs build`` writes by itself: tables out of the registries, the theory tour, the API pages, MathML.

A page says ``<!-- generate: NAME ARGUMENTS -->`` where the function of that name in :data:`GENERATORS` has something
to say, so that no table of this documentation is kept by hand. ``python docs/hooks.py`` writes what they say into the
pages of the repository, where it is read too; a test compares.
"""

from __future__ import annotations

import html
import importlib
import inspect
import io
import json
import pkgutil
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints
from unittest import mock

import griffe
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import ssl_hub
from ssl_hub.config import Expected, Part, Recipe
from ssl_hub.limits import RECIPE, VALUE_RANGE, Range
from ssl_hub.registry import Registry
from ssl_hub.zoo import get_recipe, list_recipes

ROOT = Path(__file__).parents[1]
TOUR = ROOT / "docs" / "theory_tour.py"
PACKAGES = ("zoo", "model", "data", "hub", "evaluate", "exporting", "train", "report", "theory")
PLACEHOLDER = re.compile(r"<!-- generate: (\w+) ?([^\n]*?) -->(\n((?!<!-- generate).)*?<!-- end -->)?", re.DOTALL)
AT_BUILD = ("script",)  # too long to stand in a page twice
FIELD = re.compile(r"((?:^    # .*\n)*)^    (\w+): [^=#\n]+?(?: = (.*?))?(?:  # (.*))?$", re.MULTILINE)
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the API pages to the end of the navigation."""
    pages = [{name: f"api/{name.replace('.', '_')}.md"} for name in _api_packages()]
    assert config.nav is not None
    config.nav[-1]["Extend"].append({"API": [{"Public names": "api/index.md"}, *pages]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that no file in ``docs`` holds."""
    files.append(File.generated(config, "theory_tour.md", content=tour(TOUR.read_text())))
    files.append(File.generated(config, "api/index.md", content=public_names()))
    for name, modules in _api_packages().items():
        body = "".join(f"::: {module}\n\n" for module in modules)
        files.append(File.generated(config, f"api/{name.replace('.', '_')}.md", content=f"# {name}\n\n{body}"))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return PLACEHOLDER.sub(lambda found: GENERATORS[found[1]](*found[2].split()), markdown)


def filled(markdown: str) -> str:
    """A page as it stands in the repository: what is generated stands below its placeholder, to be read there too."""

    def fill(found: re.Match[str]) -> str:
        placeholder = f"<!-- generate: {found[1]}{' ' * bool(found[2])}{found[2]} -->"
        if found[1] in AT_BUILD:
            return placeholder
        return f"{placeholder}\n\n{GENERATORS[found[1]](*found[2].split()).strip()}\n\n<!-- end -->"

    return PLACEHOLDER.sub(fill, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Turn equations into MathML, which browsers draw without any script. A block of its own scrolls in its box."""

    def mathml(found: re.Match[str]) -> str:
        drawn = convert(html.unescape(found[3]).strip(), display="inline" if found[2] == "(" else "block")
        return drawn if found[2] == "(" else f'<div class="arithmatex">{drawn}</div>'

    return EQUATION.sub(mathml, content)


def recipes(*patterns: str) -> str:
    """The recipes whose names match any of the patterns: once what all share, a row of each with what differs, and
    below those of their notes that no table before has."""
    chosen, notes = _matching(patterns), _notes_of_page()
    columns = {
        "predictor": [_part(recipe.predictor) for recipe in chosen],
        "target": [_part(recipe.target) for recipe in chosen],
        "optimiser": [f"{recipe.optim.name} {recipe.optim.lr:g}" for recipe in chosen],
        "batch": [str(recipe.train.batch_size) for recipe in chosen],
        "published (%)": [", ".join(map(_number, recipe.expected)) for recipe in chosen],
    }
    same = {name: cells[0] for name, cells in columns.items() if len(set(cells)) == 1}
    noted = [{notes[note][0] for note in _notes(recipe)} for recipe in chosen]
    everywhere = set.intersection(*noted)
    own = [_ranges(numbers - everywhere) for numbers in noted]
    differing = {name: cells for name, cells in columns.items() if name not in same}
    differing |= {"notes": own} if any(own) else {}
    shared = [f"{name} {cell}" for name, cell in same.items() if cell]
    shared += [f"note{'s' * (len(everywhere) > 1)} {_ranges(everywhere)}"] if everywhere else []
    new = [(number, text.replace("|", "\\|")) for text, (number, table) in notes.items() if table == patterns]
    return (
        f"All: {'; '.join(shared)}.\n\n"
        + _table(
            ("recipe", *differing),
            [(f"`{recipe.name}`", *cells) for recipe, *cells in zip(chosen, *differing.values(), strict=True)],
        )
        + "\n<details markdown><summary>Notes: sources, choices that are left open, and departures</summary>\n\n"
        + _table(("", "note"), new)
        + "\n</details>\n"
    )


def _matching(patterns: Sequence[str]) -> list[Recipe]:
    return [get_recipe(name) for pattern in patterns for name in list_recipes(pattern)]


def _notes(recipe: Recipe) -> list[str]:
    """What a recipe says of itself, and where its published numbers stand."""
    sources: dict[str, list[str]] = {}
    for published in recipe.expected:
        sources.setdefault(published.source, []).append(published.metric)
    return [*recipe.notes, *(f"Published: {', '.join(metrics)}: {source}." for source, metrics in sources.items())]


def _notes_of_page() -> dict[str, tuple[int, tuple[str, ...]]]:
    """Each note of the page of recipes once: its number, and the patterns of the table that it first stands in."""
    page = (ROOT / "docs" / "recipes.md").read_text()
    notes: dict[str, tuple[int, tuple[str, ...]]] = {}
    for table in re.findall(r"<!-- generate: recipes (.*?) -->", page):
        patterns = tuple(table.split())
        for note in (note for recipe in _matching(patterns) for note in _notes(recipe)):
            notes.setdefault(note, (len(notes) + 1, patterns))
    return notes


def _ranges(numbers: Iterable[int]) -> str:
    """Whole numbers, those in a row as their ends: 1-4, 7."""
    ends: list[list[int]] = []
    for number in sorted(numbers):
        if ends and number == ends[-1][-1] + 1:
            ends[-1] = [ends[-1][0], number]
        else:
            ends.append([number])
    return ", ".join("-".join(map(str, pair)) for pair in ends)


def _number(published: Expected) -> str:
    return f"{published.value:g}" + (f" ± {published.std:g}" if published.std is not None else "")


def _part(part: Part) -> str:
    return " ".join([f"`{part.kind}`", *(f"{key}={value}" for key, value in part.options)])


def options(registry: str, *kinds: str) -> str:
    """What these kinds of a registry (all, where none is named) are, and their options, out of their docstrings."""
    module, _, name = registry.rpartition(".")
    table: Registry[Any] = getattr(importlib.import_module(module), name)
    return "\n".join(_kind(kind, table[kind]) for kind in kinds or table.names())


def _kind(kind: str, made_by: Callable[..., Any]) -> str:
    sections = [s for holder in inspect.getmro(made_by) for s in _sections(holder)] if isinstance(made_by, type) else []
    sections = sections or _sections(made_by)
    text = next((section.value for section in sections if section.kind is griffe.DocstringSectionKind.text), "")
    documented = [p for s in sections if s.kind is griffe.DocstringSectionKind.parameters for p in s.value]
    meaning = {
        name: _sentence(_without_roles(" ".join(p.description.split())))
        for p in reversed(documented)
        for name in p.name.split(", ")
    }
    kinds = get_type_hints(made_by.__init__ if isinstance(made_by, type) else made_by)
    rows = [
        (f"`{name}`", f"`{parameter.default}`", f"{meaning.get(name, '')} {_values(kinds[name])}".strip())
        for name, parameter in inspect.signature(made_by).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    return f"#### `{kind}`\n\n{_without_roles(text)}\n\n" + (
        _table(("option", "default", "meaning"), rows) if rows else ""
    )


def _sections(made_by: Callable[..., Any]) -> list[griffe.DocstringSection]:
    return griffe.Docstring(inspect.cleandoc(made_by.__doc__ or "")).parse("google", warnings=False)


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:].removesuffix('.')}." if words else ""


def settings(path: str, section: str = "") -> str:
    """The fields of a dataclass with their defaults, meanings and ranges, below the section's name."""
    module, _, name = path.rpartition(".")
    holder = getattr(importlib.import_module(module), name)
    limits = {limited.removeprefix(f"{section}."): limit for limited, limit in _limits(module).items()}
    rows = [
        (f"`{name}`", f"`{default}`", f"{meaning} {_values(kind, limits.get(name))}".strip())
        for name, default, meaning, kind in _fields(holder)
    ]
    head = f"#### `{section}.*`\n\n{_without_roles(inspect.getdoc(holder) or '')}\n\n" if section else ""
    return head + _table(("setting", "default", "meaning"), rows)


def _fields(holder: type) -> Iterator[tuple[str, str, str, Any]]:
    """Name, default, meaning and type of each field of a dataclass. Its meaning is the comment at it, as a sentence."""
    kinds = get_type_hints(holder)
    for above, name, default, behind in FIELD.findall(inspect.getsource(holder).partition("    def ")[0]):
        meaning = behind or " ".join(above.replace("# ", "").split())
        yield name, default, _sentence(meaning), kinds[name]


def _limits(module: str) -> Mapping[str, Range]:
    """The ranges of a module's settings: its own, or those of recipes."""
    return getattr(importlib.import_module(module), "LIMITS", RECIPE)


def _values(kind: Any, limit: Range | None = None) -> str:
    """Which values a setting takes, as a sentence; nothing for text that may be anything."""
    if limit is VALUE_RANGE:
        return ""  # its meaning says it
    if limit is not None:
        return f"{limit.words[:1].upper()}{limit.words[1:]}."
    arms = get_args(kind)
    of = next((arm for arm in (kind, *arms) if get_origin(arm) is Literal), None)
    choices = [*(f"`{str(value).lower()}`" for value in get_args(of)), *(["none"] if type(None) in arms else [])]
    return f"{', '.join(choices[:-1])} or {choices[-1]}." if of is not None else ""


def importers() -> str:
    """The projects whose checkpoints are known."""
    from ssl_hub.hub.importers.sources import SOURCES

    sources = [SOURCES[name] for name in SOURCES.names()]
    rows = [(f"`{s.name}`", _first_sentence(s.split), s.licence, s.code or "") for s in sources]
    return _table(("source", "what it is", "licence of the weights", "of the code"), rows)


def _first_sentence(documented: object) -> str:
    return " ".join((inspect.getdoc(documented) or "").split()).partition(". ")[0].rstrip(".").replace("``", "`") + "."


def protocols() -> str:
    """The settings of each linear-probe protocol, and below what each setting means."""
    from ssl_hub.evaluate.protocols import PROTOCOLS, Cached, Trained

    chosen = {name: asdict(PROTOCOLS[name]) for name in PROTOCOLS.names()}
    settings = list(dict.fromkeys(setting for values in chosen.values() for setting in values))
    rows = [(f"`{setting}`", *(_shown(values.get(setting, "")) for values in chosen.values())) for setting in settings]
    meanings = dict.fromkeys(
        (f"`{name}`", meaning) for holder in (Cached, Trained) for name, _, meaning, _ in _fields(holder)
    )
    return _table(("setting", *(f"`{name}`" for name in chosen)), rows) + (
        "\n" + "".join(f"- {name}: {meaning}\n" for name, meaning in meanings)
    )


def _shown(value: Any) -> str:
    return (
        ", ".join(f"{v:g}" for v in value)
        if isinstance(value, tuple)
        else f"{value:.4g}"
        if isinstance(value, float)
        else str(value)
    )


def tables() -> str:
    """The tables of the paper that the package holds."""
    from ssl_hub.tables.paper import TABLES

    chosen = [TABLES[name] for name in TABLES.names()]
    return _table(
        ("name", "table", "cells", "claims"), [(f"`{t.name}`", t.title, len(t.cells), len(t.claims)) for t in chosen]
    )


def script(path: str) -> str:
    """A script of the repository, whole."""
    return f'``` python title="{path}"\n{(ROOT / path).read_text()}```'


def tour(source: str) -> str:
    """A ``# %%`` script as a page: its text, its code, and below each cell what running it prints."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    page = []
    for cell in re.split(r"^# %%", source, flags=re.MULTILINE)[1:]:
        kind, _, body = cell.partition("\n")
        if "[markdown]" in kind:
            page.append(re.sub(r"^# ?", "", body, flags=re.MULTILINE))
            continue
        with redirect_stdout(io.StringIO()) as printed, mock.patch.object(sys, "argv", [str(TOUR)]):
            exec(compile(body, TOUR, "exec"), namespace)
        page.append(f"``` python\n{body.strip()}\n```\n")
        if printed.getvalue():
            page.append(f"``` text\n{printed.getvalue()}```\n")
    return "\n".join(page)


def pictures() -> dict[str, bytes]:
    """The pictures of the pages, as the commands beside them draw them."""
    from ssl_hub.data.sheet import save_sheet, sheet_of
    from ssl_hub.theory import draw

    with TemporaryDirectory() as folder:
        draw("statespace", f"{folder}/statespace.svg")
        save_sheet(sheet_of(get_recipe("directpred-digits"), images=4, draws=2), f"{folder}/views.png")
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def public_names() -> str:
    """The names that ``import ssl_hub`` offers, each with its first sentence and where all of it is written."""
    rows = []
    for name, module in sorted(ssl_hub._PUBLIC.items()):
        summary = (inspect.getdoc(getattr(ssl_hub, name)) or "").partition("\n\n")[0].replace("\n", " ")
        rows.append((f"[`ssl_hub.{name}`][{module}.{name}]", _without_roles(summary)))
    return "# Public names\n\nAfter `import ssl_hub`, which imports nothing heavy:\n\n" + _table(("name", ""), rows)


def families() -> str:
    """What every family of timm did, as benchmarks/families.py last found it."""
    found = json.loads((ROOT / "benchmarks" / "families.json").read_text())
    checks = {
        "converted": "synchronised, equal",
        "trained": "trained",
        "loaded": "loaded, equal",
        "frozen": "frozen exactly",
    }
    rows, but = [], []
    for family, row in found["families"].items():
        failed = [outcome for check, outcome in checks.items() if row.get(check) is not True]
        wrong = dict.fromkeys(row[check] for check in checks if row.get(check) not in (None, True))
        why = row.get("refused") or "; ".join(wrong) or "not run yet"
        but += [f"- `{family}` is not {'; not '.join(failed)}: {why}\n"] if failed else []
        rows.append((f"`{family}`", f"`{row['name']}`", row.get("size", ""), row.get("layers", "")))
    return (
        f"timm {found['timm']}, {len(rows)} families. Each is {'; '.join(checks.values())}.{' But:' * bool(but)}\n\n"
        f"{''.join(but)}\n" + _table(("family", "model", "pixels", "BN"), rows)
    )


def exports() -> str:
    """What one model of each family gave in each format, as benchmarks/export_families.py last found it."""
    found = json.loads((ROOT / "benchmarks" / "export_families.json").read_text())
    formats = {
        "onnx, pooled": "ONNX",
        "onnx, stages": "ONNX, stages",
        "torch-export, pooled": "torch.export",
        "torchscript, pooled": "TorchScript",
    }
    rows, unwritten = [], []
    for family, row in found["families"].items():
        said = [_exported(row.get(key)) for key in formats]
        wrong = dict.fromkeys(row[key] for key in formats if isinstance(row.get(key), str))
        strides = ", ".join(map(str, row.get("strides", [])))
        why = row.get("left_out") or "; ".join(word.removeprefix("UsageError: ") for word in wrong)
        unwritten += [f"- `{family}`: {why}\n"] if why else []
        rows.append((f"`{family}`<br>`{row['name']}`", row.get("size", ""), *said, strides))
    head = ("family and model", "pixels", *formats.values(), "strides")
    versions = ", ".join(f"{name} {found[name]}" for name in ("timm", "torch", "onnx", "onnxruntime"))
    return f"{versions}; {len(rows)} families. Why some were not written:\n\n{''.join(unwritten)}\n" + _table(
        head, rows
    )


def flow_errors() -> str:
    """The flow against discrete training by learning rate, as benchmarks/flow_error.py last found it."""
    found = json.loads((ROOT / "benchmarks" / "results" / "flow_error.json").read_text())
    head = ("largest error, in % of the largest eigenvalue", *(f"lr {lr:g}" for lr in found["learning_rates"]))
    rows = [(name, *(f"{100 * error:.2g}" for error in errors)) for name, errors in found["errors"].items()]
    return _table(head, rows)


def collapse_forecasts() -> str:
    """Forecasts beside what happened, as benchmarks/collapse_forecast.py last found it."""
    found = json.loads((ROOT / "benchmarks" / "results" / "collapse_forecast.json").read_text())
    runs, states = found["runs"], ("collapsed", "narrow", "healthy")
    pairs = Counter((run["forecast"]["state"], run["run"]["state"]) for run in runs)
    rows = [(f"**{state}**", *(pairs[state, ends] for ends in states)) for state in states]
    confusion = _table(("forecast, and the run ended", *states), rows)
    by_setting: dict[str, list[Any]] = {}
    for run in runs:
        by_setting.setdefault(run["setting"], []).append(run)
    details = [
        (name, *(", ".join(_state(run[side]) for run in of) for side in ("forecast", "run")))
        for name, of in by_setting.items()
    ]
    right = pairs["collapsed", "collapsed"]
    foretold = sum(pairs["collapsed", ends] for ends in states)
    happened = sum(pairs[state, "collapsed"] for state in states)
    agree = len(runs) - foretold - happened + 2 * right
    return (
        f"{len(runs)} runs of {found['steps']} steps, {len(by_setting)} settings, torch {found['torch']}. Collapse was"
        f" foretold for {foretold} of them, and came in {right}; of {happened} collapses {right} were foretold. On"
        f" collapse or none, forecast and run agree in {agree} of {len(runs)}.\n\n{confusion}"
        "\n<details markdown><summary>Setting by setting, a seed after the other</summary>\n\n"
        + _table(("setting", "forecast", "run"), details)
        + "\n</details>\n"
    )


def _state(said: dict[str, str]) -> str:
    share = re.search(r"\d+%", said["numbers"])
    return f"{said['state']} {share[0] if share else ''}"


def _exported(difference: Any) -> str:
    return "" if difference is None else "no" if isinstance(difference, str) else f"{difference:.0e}"


def own_images() -> str:
    """What each start gave on own images, as benchmarks/own_images.py last found it."""
    found = json.loads((ROOT / "benchmarks" / "results" / "own-images.json").read_text())
    columns = ("kNN", "probe", "fine-tuned")
    rows = []
    for start, seeds in found["starts"].items():
        if not seeds:
            continue
        chosen = [f"{row['lr']:g} {'frozen' if row['frozen BN'] else 'moving'}" for row in seeds]
        how = ", ".join(dict.fromkeys(chosen))
        curve = " ".join(f"{value:.0f}" for value in seeds[0].get("while it trained", []))
        rows.append((start, *(_spread([row[column] for row in seeds]) for column in columns), how, curve))
    seeds = sorted({row["seed"] for row in found["starts"]["random"]})
    head = ("start", "20-NN (%)", "probe (%)", "fine-tuned (%)", "with lr, BN", "kNN while it trained, first seed")
    where = "; ".join(sorted({row["machine"] for start in found["starts"].values() for row in start}))
    return f"{'Seeds' if len(seeds) > 1 else 'Seed'} {', '.join(map(str, seeds))}; {where}.\n\n" + _table(head, rows)


def claims(name: str) -> str:
    """The paper's claims in small, as benchmarks/evidence.py found them under this name: verdicts, then numbers."""
    found = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    verdicts = "".join(
        f"- **{here['verdict']}:** {here['claim']}. Here {here['evidence'] or 'no numbers'}; in the paper"
        f" {printed['evidence'] or 'a figure without numbers'}.\n"
        for here, printed in zip(found["claims"], found["claims_in_paper"], strict=True)
    )
    rows: list[tuple[Any, ...]] = [
        (row["row"], _measured(row["paper"]), _measured(row["measured"]), *_end_of(row.get("curves")))
        for row in found["entries"]
    ]
    rows += [("untrained backbone", "", _measured(found["untrained"]), "", "")]
    rows += [("raw pixels", "", f"{found['pixels']:.1f}", "", "")]
    head = ("setting", "paper, top-1 (%)", "here, top-1 (%)", "feature std (% of 1/√d)", "effective rank")
    facts = "".join(f"- {name}: {value}\n" for name, value in found["facts"].items())
    return f"{verdicts}\n{_table(head, rows)}\nHow the numbers here came about:\n\n{facts}"


def _measured(sample: dict[str, Any] | None) -> str:
    """Mean and, of several runs, standard deviation; empty where nothing was measured."""
    if sample is None:
        return ""
    return _with_deviation(sample["mean"], sample["std"])


def _end_of(curves: dict[str, list[float]] | None) -> tuple[str, str]:
    """Where spread and effective rank ended; empty for a row without a run."""
    return ("", "") if curves is None else (f"{curves['spread'][-1]:.0f}", f"{curves['rank'][-1]:.1f}")


def _spread(values: list[float]) -> str:
    """Mean and, of several, standard deviation."""
    return _with_deviation(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None)


def _with_deviation(mean: float, std: float | None) -> str:
    return f"{mean:.1f}" + ("" if std is None else f" ± {std:.1f}")


def _without_roles(docstring: str) -> str:
    return re.sub(r":\w+:(`)~?([\w.]+`)", r"\1\2", docstring)


def _api_packages() -> dict[str, list[str]]:
    """The documented modules by package, the loose ones under the package's own name."""
    loose = [
        found.name for found in pkgutil.iter_modules(ssl_hub.__path__) if not (found.ispkg or found.name == "__main__")
    ]
    packages = {"ssl_hub": [f"ssl_hub.{name}" for name in loose]}
    for name in PACKAGES:
        packages[f"ssl_hub.{name}"] = list(_modules(importlib.import_module(f"ssl_hub.{name}")))
    return packages


def _modules(package: ModuleType) -> Iterator[str]:
    yield package.__name__
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if found.ispkg:
            yield from _modules(importlib.import_module(found.name))
        else:
            yield found.name


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)


GENERATORS: dict[str, Callable[..., str]] = {
    generator.__name__: generator
    for generator in (
        recipes,
        options,
        settings,
        importers,
        protocols,
        tables,
        families,
        exports,
        own_images,
        claims,
        flow_errors,
        collapse_forecasts,
        script,
    )
}


if __name__ == "__main__":
    for page in (ROOT / "docs").rglob("*.md"):
        page.write_text(filled(page.read_text()))
    for name, content in pictures().items():
        (ROOT / "docs" / "assets" / name).write_bytes(content if isinstance(content, bytes) else content.encode())

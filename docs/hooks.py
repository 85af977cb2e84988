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
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any
from unittest import mock

import griffe
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import ssl_hub
from ssl_hub.config import Part
from ssl_hub.registry import Registry
from ssl_hub.zoo import get_recipe, list_recipes

ROOT = Path(__file__).parents[1]
TOUR = ROOT / "docs" / "theory_tour.py"
PACKAGES = ("zoo", "model", "data", "hub", "evaluate", "exporting", "train", "report", "theory")
PLACEHOLDER = re.compile(r"<!-- generate: (\w+) ?([^\n]*?) -->(\n.*?<!-- end -->)?", re.DOTALL)
AT_BUILD = ("script",)  # too long to stand in a page twice
FIELD = re.compile(r"^    (\w+): [^=#\n]+ = (.*?)(?:  # (.*))?$", re.MULTILINE)
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
    """Turn equations into MathML, which browsers draw without any script."""

    def mathml(found: re.Match[str]) -> str:
        return convert(html.unescape(found[3]).strip(), display="inline" if found[2] == "(" else "block")

    return EQUATION.sub(mathml, content)


def recipes(*patterns: str) -> str:
    """A table of the recipes whose names match any of the patterns, and below it sources and open choices."""
    chosen = [get_recipe(name) for pattern in patterns for name in list_recipes(pattern)]
    rows = [
        (
            f"`{recipe.name}`",
            _part(recipe.predictor),
            _part(recipe.target),
            f"{recipe.optim.name} {recipe.optim.lr:g}",
            recipe.train.batch_size,
            ", ".join(f"{e.value:g}" + (f" ± {e.std:g}" if e.std is not None else "") for e in recipe.expected),
        )
        for recipe in chosen
    ]
    said: dict[str, list[str]] = {}
    for recipe in chosen:
        published = [f"Published: {e.metric}, {e.source}." for e in recipe.expected]
        for line in (*recipe.notes, *published):
            said.setdefault(line, []).append(recipe.name)
    lines = [line + ("" if len(names) == len(chosen) else f" ({', '.join(names)})") for line, names in said.items()]
    return (
        _table(("recipe", "predictor", "target", "optimiser", "batch", "published (%)"), rows)
        + "\n<details markdown><summary>Sources, choices that are left open, and departures</summary>\n\n"
        + "".join(f"- {line}\n" for line in lines)
        + "\n</details>\n"
    )


def _part(part: Part) -> str:
    return " ".join([f"`{part.kind}`", *(f"{key}={value}" for key, value in part.options)])


def options(registry: str, *kinds: str) -> str:
    """What these kinds of a registry (all, where none is named) are, and their options, out of their docstrings."""
    module, _, name = registry.rpartition(".")
    table: Registry[Any] = getattr(importlib.import_module(module), name)
    return "\n".join(_kind(kind, table[kind]) for kind in kinds or table.names())


def _kind(kind: str, made_by: Callable[..., Any]) -> str:
    sections = griffe.Docstring(inspect.getdoc(made_by) or "").parse("google", warnings=False)
    text = next((section.value for section in sections if section.kind is griffe.DocstringSectionKind.text), "")
    documented = [p for s in sections if s.kind is griffe.DocstringSectionKind.parameters for p in s.value]
    meaning = {name.strip(): p.description for p in documented for name in p.name.split(",")}
    rows = [
        (f"`{name}`", f"`{parameter.default}`", meaning.get(name, "").replace("\n", " "))
        for name, parameter in inspect.signature(made_by).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    return f"#### `{kind}`\n\n{_without_roles(text)}\n\n" + (
        _table(("option", "default", "meaning"), rows) if rows else ""
    )


def settings(path: str, section: str = "") -> str:
    """The fields of a dataclass with their defaults and the comments behind them, below the section's name."""
    module, _, name = path.rpartition(".")
    holder = getattr(importlib.import_module(module), name)
    fields = FIELD.findall(inspect.getsource(holder).partition("    def ")[0])
    rows = [(f"`{name}`", f"`{default}`", meaning) for name, default, meaning in fields]
    head = f"#### `{section}.*`\n\n{_without_roles(inspect.getdoc(holder) or '')}\n\n" if section else ""
    return head + _table(("setting", "default", "meaning"), rows)


def importers() -> str:
    """The projects whose checkpoints are known."""
    from ssl_hub.hub.importers.sources import SOURCES

    sources = [SOURCES[name] for name in SOURCES.names()]
    rows = [(f"`{s.name}`", _first_sentence(s.split), s.licence, s.code or "") for s in sources]
    return _table(("source", "what it is", "licence of the weights", "of the code"), rows)


def _first_sentence(documented: object) -> str:
    return " ".join((inspect.getdoc(documented) or "").split()).partition(". ")[0].rstrip(".").replace("``", "`") + "."


def protocols() -> str:
    """The settings of each linear-probe protocol."""
    from ssl_hub.evaluate.protocols import PROTOCOLS

    chosen = {name: asdict(PROTOCOLS[name]) for name in PROTOCOLS.names()}
    settings = list(dict.fromkeys(setting for values in chosen.values() for setting in values))
    rows = [(f"`{setting}`", *(_shown(values.get(setting, "")) for values in chosen.values())) for setting in settings]
    return _table(("setting", *(f"`{name}`" for name in chosen)), rows)


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
    checks = ("converted", "trained", "loaded", "frozen")
    rows = []
    for family, row in found["families"].items():
        said = [{None: "", True: "yes"}.get(row.get(check), "no") for check in checks]
        wrong = dict.fromkeys(row[check] for check in checks if row.get(check) not in (None, True))
        why = row.get("refused") or "; ".join(wrong) or ("" if any(said) else "not run yet")
        rows.append((f"`{family}`", f"`{row['name']}`", row.get("size", ""), row.get("layers", ""), *said, why))
    outcomes = ("synchronised, equal", "trained", "loaded, equal", "frozen exactly")
    head = ("family", "model", "pixels", "BN", *outcomes, "why not")
    return f"timm {found['timm']}, {len(rows)} families.\n\n" + _table(head, rows)


def exports() -> str:
    """What one model of each family gave in each format, as benchmarks/export_families.py last found it."""
    found = json.loads((ROOT / "benchmarks" / "export_families.json").read_text())
    formats = {
        "onnx, pooled": "ONNX",
        "onnx, stages": "ONNX, stages",
        "torch-export, pooled": "torch.export",
        "torchscript, pooled": "TorchScript",
    }
    rows = []
    for family, row in found["families"].items():
        said = [_exported(row.get(key)) for key in formats]
        wrong = dict.fromkeys(row[key] for key in formats if isinstance(row.get(key), str))
        strides = ", ".join(map(str, row.get("strides", [])))
        why = row.get("left_out") or "; ".join(word.removeprefix("UsageError: ") for word in wrong)
        rows.append((f"`{family}`", f"`{row['name']}`", row.get("size", ""), *said, strides, why))
    head = ("family", "model", "pixels", *formats.values(), "strides", "why not")
    versions = ", ".join(f"{name} {found[name]}" for name in ("timm", "torch", "onnx", "onnxruntime"))
    return f"{versions}; {len(rows)} families.\n\n" + _table(head, rows)


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
        first = seeds[0]
        how = f"lr {first['lr']:g}, BN {'frozen' if first['frozen BN'] else 'moving'}"
        curve = " ".join(f"{value:.0f}" for value in first.get("while it trained", []))
        rows.append((start, *(_spread([row[column] for row in seeds]) for column in columns), how, curve))
    seeds = sorted({row["seed"] for row in found["starts"]["random"]})
    head = ("start", "20-NN (%)", "probe (%)", "fine-tuned (%)", "fine-tuned with", "kNN while it trained, first seed")
    where = "; ".join(sorted({row["machine"] for start in found["starts"].values() for row in start}))
    return f"{'Seeds' if len(seeds) > 1 else 'Seed'} {', '.join(map(str, seeds))}; {where}.\n\n" + _table(head, rows)


def _spread(values: list[float]) -> str:
    """Mean and, of several, standard deviation."""
    return f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


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

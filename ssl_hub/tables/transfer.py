"""Transfer: frozen backbones judged on many data sets by a linear classifier and by kNN, as one table.

As in Grill et al. 2020 (arXiv 2006.07733), section 4.3 and appendix D, the linear classifier is logistic regression by
L-BFGS on features of whole images, its strength chosen on held-out training images and refitted on all of them: the
protocol ``cached``. There some data sets are judged by the mean over classes, which is given beside; here all by top-1.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ssl_hub.atomic import expanded, make_folder
from ssl_hub.codec import with_settings
from ssl_hub.data.sources import Source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate import knn as nearest
from ssl_hub.evaluate.extraction import Extraction, sources_of
from ssl_hub.evaluate.features import Features, extract
from ssl_hub.evaluate.keeping import keep_results
from ssl_hub.evaluate.linear import linear_probe
from ssl_hub.evaluate.measurement import accuracy
from ssl_hub.evaluate.model import by_features, checked, marked, work_on
from ssl_hub.evaluate.protocols import CACHED, Cached
from ssl_hub.evaluate.record import Recorder
from ssl_hub.evaluate.similarity_index import kept
from ssl_hub.evaluate.subject import PIXELS, TIMM, Subject, open_model, range_of
from ssl_hub.hub.weights import is_of_timm
from ssl_hub.model.results import Result, append_results, read_results
from ssl_hub.model.standing import objection
from ssl_hub.tables.markup import markdown_table

FEATURES = "features"
KINDS = {"linear": "linear-cached", "knn": "knn"}
TITLES = {"linear": "Linear probe (cached), top-1 (%)", "knn": "kNN, top-1 (%)"}


@dataclass(frozen=True)
class Transfer:
    """``results[model][data]`` are the results of a model on a data set; ``missing`` says why there are none."""

    models: tuple[str, ...]
    data: tuple[str, ...]
    results: Mapping[str, Mapping[str, Sequence[Result]]]
    missing: Mapping[tuple[str, str], str]

    def top1(self, kind: str, model: str, data: str) -> Result | None:
        """Of a kind, "linear" or "knn", where it counts."""
        found = (r for r in self.results.get(model, {}).get(data, ()) if r.protocol == KINDS[kind])
        return next((r for r in found if r.metric == "top1" and objection(r) is None), None)

    def grid(self, kind: str) -> list[list[str]]:
        """Header and rows: a model a row, a data set a column, with the mean where a model has them all."""
        rows = [["", *self.data, "mean"]]
        for model in self.models:
            found = [self.top1(kind, model, data) for data in self.data]
            whole = [result.value for result in found if result is not None]
            mean = f"{sum(whole) / len(whole):.2f}" if len(whole) == len(found) else ""
            rows.append([model, *("" if r is None else accuracy(r).replace(" %", "") for r in found), mean])
        return rows

    def text(self) -> str:
        """Both tables in Markdown, and why what is not there is not."""
        parts = []
        for kind, title in TITLES.items():
            header, *rows = self.grid(kind)
            parts += [title, markdown_table(header, rows)]
        aside = [f"- {model} on {data}: {reason}" for model, data, reason in self._aside()]
        return "\n\n".join([*parts, *(["Not in the tables:", "\n".join(aside)] if aside else [])]) + "\n"

    def json(self) -> str:
        """Every number of the tables, with its interval and the mean over classes."""
        plain = [
            {
                "model": model, "data": data, "kind": kind, "top1": result.value, "interval": result.interval,
                "mean_per_class": mean_per_class(result), "images": result.images,
            }
            for kind in KINDS
            for model in self.models
            for data in self.data
            if (result := self.top1(kind, model, data)) is not None
        ]  # fmt: skip
        missing = [{"model": m, "data": d, "reason": reason} for m, d, reason in self._aside()]
        return json.dumps({"results": plain, "missing": missing}, indent=2, allow_nan=False) + "\n"

    def _aside(self) -> list[tuple[str, str, str]]:
        return [(m, d, reason) for m in self.models for d in self.data for reason in self._reasons(m, d)]

    def _reasons(self, model: str, data: str) -> list[str]:
        if (model, data) in self.missing:
            return [self.missing[model, data]]
        found = self.results.get(model, {}).get(data, ())
        return list(dict.fromkeys(reason for r in found if (reason := objection(r)) is not None))


def mean_per_class(result: Result) -> float | None:
    """The mean over classes of the share of each that is right, in percent; None where classes were not counted."""
    shares = [right / images for right, images in result.per_class.values() if images]
    return 100 * sum(shares) / len(shares) if shares else None


def transfer(
    models: Sequence[str | Path],
    data: Sequence[str],
    *,
    out: str | Path,
    k: int = 20,
    temperature: float = 0.07,
    overrides: Mapping[str, Any] | None = None,
    show_progress: bool = False,
    **options: Any,
) -> Transfer:
    """Judge each model on each data set.

    Features and results are kept in ``out``, a folder for each model: the same call again, or one with another data set
    or model more, computes only what is missing. A data set that cannot be judged stops no other. A release keeps the
    results too.

    Args:
        models: as in :func:`ssl_hub.knn`.
        data: registered names, paths or Hub dataset ids.
        k, temperature: of the vote. overrides: of the settings of the protocol ``cached``.
        show_progress: say on stderr which is next, and how far it is.
        options: see :class:`~ssl_hub.evaluate.extraction.Extraction`.

    Raises:
        UsageError: no data, or arguments out of range.
    """
    extraction, protocol = Extraction(**options), with_settings(CACHED, overrides or {})
    nearest.check_vote(k, temperature)
    if not data or not models:
        raise UsageError("there is nothing to transfer: give one model or more, and one data set or more")
    folder = expanded(out)
    found: dict[str, dict[str, Sequence[Result]]] = {}
    missing: dict[tuple[str, str], str] = {}
    for model in dict.fromkeys(map(str, models)):
        sized = model == PIXELS or model.startswith(TIMM) or is_of_timm(model)  # a release has a size of its own
        size = extraction.image_size if sized else None
        subject = open_model(model, image_size=size, seed=extraction.seed)
        seen = [model, *([] if size is None else [f"{size}px"]), *filter(None, [extraction.range])]  # no weight tells
        job = _Job(subject, folder / _slug("-".join(seen)), extraction, protocol, k, temperature, show_progress)
        for name in dict.fromkeys(data):
            if show_progress:
                print(f"{model} on {name}", file=sys.stderr)
            try:
                found.setdefault(model, {})[name] = job.judge(name)
            except UsageError as error:
                missing[model, name] = str(error)
    return Transfer(tuple(dict.fromkeys(map(str, models))), tuple(dict.fromkeys(data)), found, missing)


@dataclass(frozen=True)
class _Job:
    """One model with its folder."""

    subject: Subject
    folder: Path
    extraction: Extraction
    protocol: Cached
    k: int
    temperature: float
    show_progress: bool

    def judge(self, data: str) -> list[Result]:
        """The results on a data set: those in the folder where they are of these images, weights and settings."""
        work = work_on(self.subject, self.extraction, None, self.show_progress)
        sources = sources_of(None, range_of(self.subject), data, self.extraction)
        fold_of, recorder = checked(self.subject, sources, self.extraction, work, trained=True)
        folder = self.folder / _slug(data)
        known = [result for result in read_results(folder) if self._is_asked_for(result, recorder)]
        if {result.protocol for result in known} == set(KINDS.values()):
            return known

        def take(source: Source) -> Features:
            make = partial(extract, self.subject.model, source, self.subject.transform, **work._asdict())
            make_folder(self.folder)
            return kept(self.folder / FEATURES, self.subject, source, make)[0]

        features = {id(source): take(source) for source in (sources[:1] if fold_of is not None else sources)}
        seed = self.extraction.seed
        measures: list[Callable[[Features, Features], list[Result]]] = [
            partial(nearest.knn, k=self.k, temperature=self.temperature, device=work.device),
            lambda fitted, judged: linear_probe(fitted, judged, self.protocol, seed=seed, work=work)[1],
        ]
        results: list[Result] = []
        for measure in measures:
            results += by_features(sources, fold_of, lambda source: features[id(source)], measure)
        results = marked(recorder.complete(results), self.subject, self.extraction)
        make_folder(folder)
        append_results(folder, results)
        if self.subject.folder is not None:
            work.say(keep_results(self.subject.folder, results))
        return results

    def _is_asked_for(self, result: Result, recorder: Recorder) -> bool:
        settings, facts = result.settings, recorder.facts
        if (result.data, result.backbone, result.overlap) != (facts["data"], facts["backbone"], facts["overlap"]):
            return False
        if settings.get("folds") != self.extraction.folds:
            return False
        if result.protocol == "knn":
            wanted = min(self.k, settings["bank_size"]), self.temperature, self.extraction.dealt_by
            return (settings["k"], settings["temperature"], result.seed) == wanted
        asked = {
            "strengths": sorted(set(self.protocol.strengths), reverse=True),
            "holdout": self.protocol.holdout,
            "max_iter": self.protocol.max_iter,
        }
        return result.seed == self.extraction.seed and all(settings.get(name) == value for name, value in asked.items())


def _slug(name: str) -> str:
    return re.sub(r"[^\w.@-]+", "-", name).strip("-.") or "unnamed"

"""Measured numbers on a model card: the model index that the Hub reads, and the table that people read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from huggingface_hub import EvalResult

from ssl_hub.hub.markdown import one_line, plain_text, public_name, slug, table
from ssl_hub.model.results import Result, interval_text

if TYPE_CHECKING:
    from ssl_hub.hub.card_sections import Subject

PROTOCOLS = {"knn": "k nearest neighbours", "linear": "linear probe", "finetune": "fine-tuning"}  # up to a "-"


def indexed(result: Result) -> EvalResult:
    name = public_name(result.dataset)
    return EvalResult(
        task_type="image-classification",
        task_name="Image classification",
        dataset_type=slug(result.dataset if "/" in result.dataset and name == result.dataset else name),
        dataset_name=one_line(name),
        dataset_split=slug(result.split),
        metric_type="accuracy",
        metric_name=f"{one_line(result.metric)} accuracy (%), {protocol_name(result)}",
        metric_value=rounded(result.value),
        metric_args={"protocol": one_line(result.protocol), "seed": result.seed, **_scalars(result.settings)},
    )


def protocol_name(result: Result) -> str:
    """``linear-cached`` in words: linear probe, cached."""
    kind, dash, variant = one_line(result.protocol).partition("-")
    return PROTOCOLS.get(kind, kind) + (f", {variant}" if dash else "")


def results(subject: Subject) -> str:
    parts = []
    if subject.results:
        rows = [
            (
                protocol_name(result),
                public_name(result.dataset),
                result.split,
                result.metric,
                f"{result.value:.2f}" + _interval(result),
                ", ".join(
                    f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in _scalars(result.settings).items()
                ),
                "" if result.seed is None else str(result.seed),
                result.date[:10],
            )
            for result in subject.results
        ]
        header = ("protocol", "data", "split", "metric", "value (%)", "settings", "seed", "measured")
        parts.append(
            "Measured with ssl_hub on frozen features, unless the protocol says otherwise"
            + ("; in brackets the 95 % interval over such images" if any(r.interval for r in subject.results) else "")
            + ".\n\n"
            + table(header, rows)
        )
    elif subject.trained and not subject.aside:
        parts.append("Nothing was measured.")
    if subject.aside:
        lines = [
            f"- {protocol_name(r)}, {plain_text(public_name(r.dataset))}, {plain_text(r.metric)}: {plain_text(reason)}"
            for r, reason in subject.aside
        ]
        parts.append("Measured too, and left out:\n\n" + "\n".join(lines))
    recipe = subject.recipe or next(iter(subject.story.recipes[-1:]), None)
    expected = recipe.expected if recipe and subject.story.last in ("", "pretrained") else ()
    if expected:
        published = [
            (e.metric, f"{e.value}" + (f" ± {e.std}" if e.std is not None else ""), e.source) for e in expected
        ]
        parts.append("Reported by the paper, not measured here:\n\n" + table(("metric", "value", "source"), published))
    return "\n\n".join(parts) or "None: nothing was measured here, and no number is published for it."


def _interval(result: Result) -> str:
    return "" if result.interval is None else f" ({interval_text(result.interval)})"


def rounded(value: float) -> float:
    """To six digits: what float32 adds behind them was not measured."""
    return float(f"{value:.6g}")


def _scalars(settings: Mapping[str, Any]) -> dict[str, Any]:
    plain = (bool, int, float, str)
    return {
        slug(str(key)): one_line(v) if isinstance(v, str) else rounded(v) if isinstance(v, float) else v
        for key, v in settings.items()
        if isinstance(v, plain)
    }

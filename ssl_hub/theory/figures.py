"""The figures of the paper that are not training curves, redrawn in one style: `draw("statespace", "statespace.png")`.

Series are told apart by colour, lightness and dashes together, and fixed points by marker, so that every figure reads
in greyscale. The parameters stand under the figure; any of them can be overridden by keyword. matplotlib is imported
when a figure is drawn, and no window is ever opened.
"""

from __future__ import annotations

import difflib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssl_hub.atomic import expanded, refuse_missing_folder, replace_file
from ssl_hub.errors import UsageError
from ssl_hub.theory import figure_data, painting
from ssl_hub.theory.figure_data import Data

WIDTH = 7.0  # inches: a page's two columns
STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "mathtext.fontset": "cm",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "savefig.dpi": 200,
    "svg.hashsalt": "ssl_hub",  # names of its parts: a figure that is drawn again is the same file
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True)
class FigureSpec:
    """A figure: the function of its numbers and the function that draws them on a matplotlib figure."""

    data: Callable[..., Data]
    paint: Callable[..., None]
    height: float  # inches
    shown: str  # the parameters that stand under it


def figure_names() -> list[str]:
    """Names that `draw` takes."""
    return list(FIGURES)


def parameters(name: str) -> dict[str, Any]:
    """Parameters of a figure with their defaults."""
    signature = inspect.signature(_spec(name).data)
    return {key: parameter.default for key, parameter in signature.parameters.items()}


def draw(name: str, out: str | Path, **overrides: Any) -> Path:
    """Compute and draw a figure.

    Args:
        name: one of `figure_names()`.
        out: the file to write; its suffix (.png, .pdf, .svg) is the format.
        **overrides: parameters of the figure, see `parameters(name)`.

    Returns:
        The path written.

    Raises:
        UsageError: an unknown figure or parameter, a format that is not drawn, or matplotlib missing.
    """
    spec, known = _spec(name), parameters(name)
    for key in overrides:
        if key not in known:
            raise UsageError(
                f"figure {name!r} has no parameter {key!r}{_suggest(key, known)}; it has {', '.join(known)}"
            )
    used = {**known, **overrides}

    def paint(figure: Any) -> None:  # so that nothing is computed for a file that cannot be written
        spec.paint(figure, spec.data(**used), used)

    return render(paint, Path(out), footer(name, used), height=spec.height)


def footer(name: str, used: dict[str, Any]) -> list[str]:
    """The caption, and the parameters that the panels do not show."""
    shown = ", ".join(f"{SYMBOLS.get(key, key)} = {used[key]:g}" for key in FIGURES[name].shown.split())
    return [CAPTIONS[name], *([f"Parameters: {shown}."] if shown else [])]


def render(paint: Callable[[Any], None], path: Path, paragraphs: list[str], *, height: float) -> Path:
    """Have a figure painted in the common style, put the paragraphs under it, and write it.

    Raises UsageError for a format that is not drawn, a folder that does not exist, a disk that is full, or where
    matplotlib is missing.
    """
    path = expanded(path)
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise UsageError(f"cannot write {path.name}: the suffix is {path.suffix!r}; expected .png, .pdf or .svg")
    refuse_missing_folder(path)
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("figures need matplotlib; install it with `pip install matplotlib`") from error
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height))
        FigureCanvasAgg(figure)
        paint(figure)
        text = "\n".join(line for paragraph in paragraphs for line in wrapped(paragraph))
        figure.supxlabel(text, fontsize=7, color="0.25", x=0.01, ha="left", linespacing=1.35)
        undated = {"CreationDate" if path.suffix == ".pdf" else "Date": None} if path.suffix != ".png" else None
        replace_file(path, lambda aside: figure.savefig(aside, format=path.suffix[1:], metadata=undated))
    return path


def _spec(name: str) -> FigureSpec:
    if name not in FIGURES:
        raise UsageError(f"unknown figure {name!r}{_suggest(name, FIGURES)}; known: {', '.join(FIGURES)}")
    return FIGURES[name]


def _suggest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


SYMBOLS = {
    "sigma2": r"$\sigma^2$",
    "alpha_p": r"$\alpha_p$",
    "alpha": r"$\alpha$",
    "eta": r"$\eta$",
    "beta": r"$\beta$",
    "tau": r"$\tau$",
    "tau0": r"$\tau(0)$",
    "p0": r"$p(0)$",
    "lambda_s": r"$\lambda_s$",
    "lambda_d": r"$\lambda_d$",
    "wa": r"$w_a$",
    "d": r"$n_2$",
    "n": r"$n_1=n_2$",
}


def wrapped(paragraph: str) -> list[str]:
    """Lines of a paragraph, broken between formulas but not inside one."""
    whole_formulas = re.sub(r"\$[^$]*\$", lambda formula: formula.group().replace(" ", "\0"), paragraph)
    return [line.replace("\0", " ") for line in textwrap.wrap(whole_formulas, 135, break_long_words=False)]


CAPTIONS = {
    "two-layer-setting": (
        "The two-layer setting: a linear online network, a linear predictor without bias, and a target that "
        "follows the online network."
    ),
    "statespace": (
        r"State space of the decoupled (p, s) flow. Blue: flow lines; dashed: the parabola $s_j = p_j^2/\alpha_p$; "
        r"thick lines: fixed points without weight decay (solid stable, dotted unstable)."
    ),
    "stationary": r"Flow on the invariant parabola, $\dot p_j = -(1+\sigma^2)\,p_j(p_j-p^*_{j-})(p_j-p^*_{j+})$.",
    "ablation-eta-beta": (
        r"Roles of weight decay $\eta$ and EMA rate $\beta$: Euler steps of the decoupled (p, s, $\tau$) flow, "
        r"started on the parabola. Alignment is stable where $K$ is positive."
    ),
    "check-ema-assumption": (
        r"How far $W_a = \tau W$ holds along Lemma 1: mean and standard deviation of the normalised correlation, "
        r"$W_a(0) = 0$, $\beta = (1-\gamma_a)/\alpha$."
    ),
    "A-B-supp": (
        r"Symmetric part $A$ and skew part $B$ of an unsymmetrised $W_p$ on $F = W_p^\top W_p/\alpha_p$ at fixed "
        r"$\tau$. $A$ dies where $\eta > \tau^2/4(1+\sigma^2)$; $\|B\|_F$ falls at least as $e^{-\eta t}$."
    ),
    "verify-eigen-alignment": (
        r"Commutator of $F$ and $W_p$ in the symmetrised flow at fixed $\tau$. The raw norm (top) also follows the "
        r"size of its factors; the normalised one (bottom) is alignment alone."
    ),
    "lowdimbyol": (
        "Low-dimensional BYOL: directions of flow, nullclines and fixed points; the red hyperbola is a line of "
        "stable fixed points."
    ),
}

FIGURES: dict[str, FigureSpec] = {
    "two-layer-setting": FigureSpec(lambda: {}, painting.schematic, 2.4, ""),
    "statespace": FigureSpec(figure_data.statespace, painting.statespace, 2.9, "sigma2 alpha_p tau"),
    "stationary": FigureSpec(figure_data.stationary, painting.stationary, 2.5, "sigma2 tau"),
    "ablation-eta-beta": FigureSpec(figure_data.ablation, painting.ablation, 3.7, "sigma2 alpha_p alpha p0 tau0"),
    "check-ema-assumption": FigureSpec(
        figure_data.ema_assumption, painting.ema_assumption, 2.7, "sigma2 alpha n runs seed"
    ),
    "A-B-supp": FigureSpec(
        figure_data.symmetric_and_skew, painting.symmetric_and_skew, 5.0, "sigma2 alpha_p d scale seed"
    ),
    "verify-eigen-alignment": FigureSpec(
        figure_data.commutator_norm, painting.commutator, 3.8, "sigma2 alpha_p d seed"
    ),
    "lowdimbyol": FigureSpec(
        figure_data.low_dimension, painting.low_dimension, 3.2, "lambda_s lambda_d alpha_p beta wa"
    ),
}

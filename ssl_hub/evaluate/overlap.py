"""Nothing is judged on images that it was fitted to: refused before any work, or marked where that is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from accelerate import Accelerator
from accelerate.utils import gather_object

from ssl_hub.data.hub_datasets import owned_address
from ssl_hub.data.overlap import Overlap, copies, overlap
from ssl_hub.data.registered import SOURCES
from ssl_hub.data.sources import Source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.agreement import everywhere
from ssl_hub.model.standing import bases, is_part

Found = TypeVar("Found")
ALLOW = ". --allow-overlap (allow_overlap=True) measures all the same, and the number counts nowhere"


def refuse_overlap(
    fitted: Source,
    judged: Source,
    *,
    allow: bool = False,
    accelerator: Accelerator | None = None,
    way_out: str = ALLOW,
) -> Overlap:
    """What the two splits share; UsageError where that is anything, unless ``allow``. Collective: one process looks.
    ``way_out`` ends the error.

    Two whole splits as their publisher made them, of a dataset of the Hub or a built-in one, may share what they share:
    that is part of the benchmark, and everybody's numbers have it. Not all of it, which is one split under two names.
    """
    found = _by_first(accelerator, lambda: overlap(fitted, judged))
    if not found.images or allow or is_tolerated(found, fitted, judged):
        return found
    shown = "; ".join(f"{its} is {own}" if its != own else own for own, its in found.examples)
    more = ", ..." if found.images > len(found.examples) else ""
    raise UsageError(
        f"{found.images:,} of the {found.of:,} images of {judged.name} ({judged.split}) are in {fitted.name} "
        f"({fitted.split}) too, which is fitted to: {shown}{more}; choose splits that share none, "
        f"take copies out (`ssl-hub duplicates`), or --holdout 0.2{way_out}"
    )


def copies_in(source: Source, accelerator: Accelerator | None = None) -> list[list[int]]:
    """Places of the images of one content, for whoever deals a split into parts: copies belong in one of them.
    Collective: one process looks."""
    return _by_first(accelerator, lambda: copies(source))


def is_tolerated(found: Overlap, fitted: Source, judged: Source) -> bool:
    """Whether what two splits share is part of a benchmark."""
    return 0 < found.images < found.of and is_published(fitted, judged)


def is_published(fitted: Source, judged: Source) -> bool:
    """Whether these are whole splits of one dataset of the Hub, or of a built-in one, and none is in both."""
    whole = not (is_part(fitted.split) or is_part(judged.split)) and bases(fitted.split).isdisjoint(bases(judged.split))
    return whole and fitted.name == judged.name and (_is_built_in(fitted) or owned_address(fitted.name) is not None)


def _is_built_in(source: Source) -> bool:
    return source.name in SOURCES and source.root is None


def _by_first(accelerator: Accelerator | None, look: Callable[[], Found]) -> Found:
    """What the first process finds, on all: the others would read the same."""
    if accelerator is None or accelerator.num_processes == 1:
        return look()
    mine = everywhere(accelerator, lambda: look() if accelerator.is_main_process else None)
    every: list[Found | None] = gather_object([mine])
    found = every[0]
    assert found is not None
    return found

"""The tables of Tian et al. 2021 (arXiv 2102.06810) as data: each cell's recipe, overrides, printed mean and std.

Numbers are facts of the paper; ``source`` is the label of a table in it. Notes say where a setting is not printed in
full and what stands for it. The STL-10 ablations are in ``ablations``, the table of other papers in ``relatives``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ssl_hub.config import Data
from ssl_hub.data.sources import SOURCES, open_part
from ssl_hub.errors import UsageError
from ssl_hub.registry import Registry
from ssl_hub.tables import ablations, relatives
from ssl_hub.tables.ablations import AUTHORS, DIRECT, LINEAR, TWO_LAYER, Number, Overrides
from ssl_hub.tables.cells import Cell, Claim, Printed, Table, top1
from ssl_hub.tables.digest import digest
from ssl_hub.zoo import RECIPES

BYOL, SIMSIAM = "linear-byol", "linear-simsiam"

TABLES: Registry[Table] = Registry("table")


class Size(NamedTuple):
    """How many images a data set trains on, how many of its labels a probe sees and how many images it is tested on:
    what tells it from a part of it."""

    images: int
    labelled: int
    classes: int
    tested: int


SIZES = {
    "ILSVRC/imagenet-1k": Size(1_281_167, 1_281_167, 1000, 50_000),
    "jxie/stl10": Size(105_000, 5_000, 10, 8_000),
    "uoft-cs/cifar10": Size(50_000, 50_000, 10, 10_000),
}


def size_of(data: Data) -> Size:
    """The size of a recipe's data, which is opened where it is none of the paper's; UsageError where nothing tells."""
    if data.name in SIZES:
        return SIZES[data.name]
    if data.name not in SOURCES:
        raise UsageError(f"the size of {data.name} is not known: add it to ssl_hub.tables.paper.SIZES")
    pretrained, labelled, tested = (
        open_part(data, split) for split in (data.pretrain_split, data.train_split, data.test_split)
    )
    return Size(len(pretrained), len(labelled), len(tested.classes or ()), len(tested))


def chance_of(table: Table) -> float | None:
    """The top-1 accuracy of guessing on a table's data, in percent; None for data of unknown classes."""
    try:
        size = size_of(RECIPES[table.cells[0].recipe].data)
    except UsageError:
        return None
    return 100 / size.classes if size.classes else None


DIRECTPRED, FREQ_5, TRAINED = (
    ("DirectPred", "directpred"),
    ("DirectPred, freq 5", "directpred-freq5"),
    ("trained linear", "byol-linear"),
)


def long_training(dataset: str, label: str, numbers: Mapping[tuple[str, str], Sequence[Number]]) -> Table:
    """Three methods, keyed by their label and the start of their recipes' names, for 100, 300 and 500 epochs."""
    epochs = (100, 300, 500)
    comparisons = [
        *(("DirectPred does better than a trained linear predictor", DIRECTPRED, TRAINED, n) for n in epochs),
        *(("setting it at every fifth step helps", FREQ_5, DIRECTPRED, n) for n in epochs[1:]),
    ]
    return Table(
        name=f"long-{dataset}",
        title=f"{label}, longer training: top-1 (%)",
        source="tab:accuracy-long-term",
        repeats=5,
        cells=[
            top1(row, f"{n} epochs", f"{method}-r18-{dataset}-{n}ep", AUTHORS, number)
            for (row, method), row_numbers in numbers.items()
            for n, number in zip(epochs, row_numbers, strict=True)
        ],
        claims=[
            Claim(f"{text} ({n} epochs)", "above", f"{cell[0]}, {n} epochs", f"{than[0]}, {n} epochs")
            for text, cell, than, n in comparisons
        ],
    )


def imagenet() -> Table:
    methods = {
        "two-layer": ("byol", ((64.7, 85.8), (72.5, 90.8))),
        "linear": ("byol-linear", ((59.4, 82.3), (69.9, 89.6))),
        "DirectPred": ("directpred", ((64.4, 85.8), (72.4, 91.0))),
    }
    rows = [
        (row, epochs, f"{method}-r50-{epochs}ep", BYOL, numbers)
        for row, (method, by_epochs) in methods.items()
        for epochs, numbers in zip((60, 300), by_epochs, strict=True)
    ]
    rows += [
        ("SimSiam, symmetric linear", 100, "simsiam-symmetric-r50-100ep", SIMSIAM, (0.1, 0.5)),
        ("SimSiam, linear", 100, "simsiam-linear-r50-100ep", SIMSIAM, (68.1, 88.2)),
    ]
    claims = []
    for n in (60, 300):
        direct, linear, two_layer = (f"{row}, {n} epochs" for row in ("DirectPred", "linear", "two-layer"))
        claims += [
            Claim(f"DirectPred does better than a trained linear predictor ({n} epochs)", "above", direct, linear),
            Claim(f"DirectPred is as good as the two-layer predictor ({n} epochs)", "matches", direct, two_layer),
        ]
    symmetric, regular = "SimSiam, symmetric linear, 100 epochs", "SimSiam, linear, 100 epochs"
    claims.append(Claim("SimSiam with a symmetric linear predictor collapses", "collapses", symmetric, regular))
    return Table(
        name="imagenet",
        title="ImageNet, ResNet-50, linear probe: top-1 and top-5 (%)",
        source="tab:accuracy-on-imagenet",
        repeats=1,
        cells=[
            Cell(row, f"{epochs} epochs", recipe, protocol, printed={"top1": Printed(first), "top5": Printed(fifth)})
            for row, epochs, recipe, protocol, (first, fifth) in rows
        ],
        claims=claims,
        notes=("The SimSiam rows stand in the text, without their number of epochs: SimSiam's 100 are used.",),
    )


def in_text() -> Table:
    """What the text says of STL-10 and no table holds, or holds otherwise."""
    rows: dict[str, tuple[str, Overrides, tuple[float, ...]]] = {
        "DirectPred, eps=0": (DIRECT, {"predictor.eps": 0.0}, (76.77,)),
        "DirectPred": (DIRECT, {}, (77.38,)),
        "DirectPred, 6 partitions": (DIRECT, {"predictor.partitions": 6}, (78.20, 0.16)),
        "trained linear": (LINEAR, {}, (74.51,)),
        "two-layer": (TWO_LAYER, {}, (78.85,)),
        "DirectPred, freq 5, 500 epochs": ("directpred-freq5-r18-stl10-500ep", {}, (80.28,)),
    }
    return Table(
        name="in-text",
        title="STL-10, numbers in the text: top-1 (%)",
        source="the text",
        repeats=5,
        cells=[
            top1(row, "in text", recipe, AUTHORS, number, overrides)
            for row, (recipe, overrides, number) in rows.items()
        ],
        claims=[
            Claim(
                "six random partitions improve DirectPred",
                "above",
                "DirectPred, 6 partitions, in text",
                "DirectPred, in text",
            )
        ],
        notes=("77.38 is in the text alone; the tables have 77.86 (rho=0.3) and 77.56 (rho=0.5).",),
    )


LONG_STL10 = {
    DIRECTPRED: ((77.86, 0.16), (78.77, 0.97), (78.86, 1.15)),
    FREQ_5: ((77.54, 0.11), (79.90, 0.66), (80.28, 0.62)),
    TRAINED: ((75.06, 0.52), (75.25, 0.74), (75.25, 0.74)),
}
LONG_CIFAR10 = {
    DIRECTPRED: ((85.21, 0.23), (88.88, 0.15), (89.52, 0.04)),
    FREQ_5: ((84.93, 0.29), (88.83, 0.10), (89.56, 0.13)),
    TRAINED: ((84.49, 0.20), (88.57, 0.15), (89.33, 0.27)),
}

_PRINTED = (
    imagenet(),
    *ablations.tables(),
    long_training("stl10", "STL-10", LONG_STL10),
    long_training("cifar10", "CIFAR-10", LONG_CIFAR10),
    in_text(),
    relatives.closed_form(),
)
for _table in (*_PRINTED, digest({table.name: table for table in _PRINTED})):
    TABLES.add(_table.name, _table)

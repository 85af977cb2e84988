"""The paper's tables as data: every cell is a recipe that says what its labels say, every number the printed one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ssl_hub.codec import changes
from ssl_hub.evaluate.protocols import PROTOCOLS
from ssl_hub.model.parts import with_defaults
from ssl_hub.tables.paper import SIZES, TABLES
from ssl_hub.zoo import RECIPES

PAPER = Path(__file__).parents[3] / "shared" / "paper" / "tables.yaml"
IN_YAML = {
    "optimal-predictor": ["optimal_predictor_plugin_vs_frequency"],
    "no-weight-decay": ["no_weight_decay"],
    "symmetrisation": ["symmetrisation_times_ema"],
    "predictor-decay": ["weight_decay_only_on_predictor"],
    "rho-eps": ["directpred_rho_eps"],
    "eigenvalue-shift": ["directpred_cj"],
    "long-stl10": ["directpred_long_training", "rows", "STL-10"],
    "long-cifar10": ["directpred_long_training", "rows", "CIFAR-10"],
    "imagenet": ["imagenet"],
}
ALL_CELLS = [(name, cell) for name in TABLES.names() for cell in TABLES[name].cells]


@pytest.mark.parametrize(("table", "cell"), ALL_CELLS, ids=lambda value: getattr(value, "name", value))
def test_a_cell_is_trained_as_its_labels_say(table, cell):
    recipe = cell.settings()
    labels = set(cell.name.split(", "))
    options = dict(recipe.predictor.options)
    assert recipe.data.name in SIZES
    assert cell.protocol.removeprefix("linear-") in PROTOCOLS
    assert ("no EMA" in labels or "SimSiam" in labels) == (recipe.target.kind == "stopgrad")
    for label, kind in {"symmetric": "symmetric", "symmetric linear": "symmetric", "trained linear": "linear"}.items():
        assert label not in labels or recipe.predictor.kind == kind
    if "bias" in labels or "no bias" in labels:
        assert options.get("bias", False) is ("bias" in labels)
    if "two-layer" in labels:
        assert recipe.predictor.kind == "mlp" or options["layers"] == 2
    if "predictor decay" in labels or "no decay" in labels:
        predictor = recipe.optim.predictor_weight_decay
        assert recipe.optim.weight_decay == 0
        assert (4e-4 if "predictor decay" in labels else 0) == (0 if predictor is None else predictor)
    for label in labels:
        name, _, value = label.partition("=")
        assert not value or options[name] == float(value)
        if label.endswith(" epochs"):
            assert recipe.train.epochs == int(label.removesuffix(" epochs"))
        if label.startswith("every "):
            assert (recipe.predictor.kind, options["freq"]) == ("optimal", int(label.removeprefix("every ")))


def test_no_two_cells_of_a_table_are_the_same_run():
    for name in TABLES.names():
        cells = TABLES[name].cells
        runs = [(cell.settings().name, repr(cell.settings())) for cell in cells]
        assert len(set(runs)) == len(cells) == len({cell.folder for cell in cells}), name


def test_numbers_that_recipes_expect_are_printed_in_a_table():
    cells = [(with_defaults(cell.settings()), cell.printed.values()) for _, cell in ALL_CELLS]
    checked = 0
    for name in RECIPES.names():
        expected = {(e.value, e.std) for e in RECIPES[name].expected if e.source.startswith("Tian et al.")}
        recipe = with_defaults(RECIPES[name])
        printed = {
            tuple(number)
            for settings, numbers in cells
            if not changes(settings, recipe)
            for number in numbers
            if number
        }
        assert expected <= printed, name
        checked += len(expected)
    assert checked >= 30


def test_the_digest_has_the_cells_of_the_other_tables_and_their_numbers():
    cells = TABLES["claims"].cells
    printed = {cell.name: cell.printed["top1"] for cell in cells}
    assert printed["DirectPred, 100 epochs"] == TABLES["rho-eps"]["rho=0.3, eps=0.1"].printed["top1"]
    assert [name for name, number in printed.items() if number is None] == [
        "symmetric, no EMA, fast predictor, 100 epochs"
    ]
    fast = cells[-1].settings()
    assert (fast.predictor.kind, fast.target.kind, fast.optim.predictor_lr_ratio) == ("symmetric", "stopgrad", 10.0)


def numbers_in(node: Any) -> Iterator[tuple[float, float | None]]:
    """Every printed accuracy below a node, in order."""
    if not isinstance(node, dict):
        return
    if "mean" in node:
        yield node["mean"], node["std"]
    elif "top1" in node:
        yield from ((node["top1"], None), (node["top5"], None))
    else:
        for key, value in node.items():
            if key != "settings":
                yield from numbers_in(value)


@pytest.mark.data
@pytest.mark.parametrize("table", IN_YAML)
def test_numbers_are_those_of_the_transcription(table):
    node = transcription()["tables"]
    for key in IN_YAML[table]:
        node = node[key]
    there = list(numbers_in(node))
    ours = [tuple(number) for cell in TABLES[table].cells for number in cell.printed.values()]
    assert ours[: len(there)] == there
    assert len(ours) == len(there) + (4 if table == "imagenet" else 0)  # SimSiam's rows stand in the text


@pytest.mark.data
def test_numbers_in_the_text_are_those_of_the_transcription():
    text = transcription()["in_text_numbers"]
    cells = {cell.row: cell.printed["top1"] for cell in TABLES["in-text"].cells}
    partitions = text["six_random_partitions"]
    assert cells["DirectPred, eps=0"].mean == text["stl10_directpred_eps0"]
    assert cells["DirectPred"].mean == text["stl10_directpred_eps_text"]["value"]
    assert tuple(cells["DirectPred, 6 partitions"]) == (partitions["mean"], partitions["std"])
    assert cells["trained linear"].mean == text["stl10_sgd_baseline_text"]
    assert cells["two-layer"].mean == text["stl10_two_layer_reference"]
    assert cells["DirectPred, freq 5, 500 epochs"].mean == text["stl10_directpred_freq5_500ep"]
    simsiam = {cell.row: cell.printed for cell in TABLES["imagenet"].cells if "SimSiam" in cell.row}
    for row, key in (("SimSiam, symmetric linear", "symmetric"), ("SimSiam, linear", "asymmetric_regular")):
        there = text["imagenet_simsiam_linear_predictor"][key]
        assert {metric: number.mean for metric, number in simsiam[row].items()} == {
            metric: there[metric] for metric in ("top1", "top5")
        }


@pytest.mark.data
def test_crashes_and_best_numbers_are_those_of_the_transcription():
    tables = transcription()["tables"]
    for name, kind, flag in (
        ("symmetrisation", "collapses", "crash"),
        ("predictor-decay", "collapses", "crash"),
        ("rho-eps", "above", "best"),
    ):
        table, there = TABLES[name], {tuple(numbers) for numbers in flagged(tables[IN_YAML[name][0]], flag)}
        assert {tuple(table[claim.cell].printed["top1"]) for claim in table.claims if claim.kind == kind} == there


def flagged(node: Any, flag: str) -> Iterator[tuple[float, float]]:
    if isinstance(node, dict):
        if node.get(flag) is True:
            yield node["mean"], node["std"]
        for value in node.values():
            yield from flagged(value, flag)


def transcription() -> dict[str, Any]:
    if not PAPER.is_file():
        pytest.skip(f"no {PAPER}")
    import yaml

    plain = yaml.safe_load(PAPER.read_text())
    assert isinstance(plain, dict)
    return plain

"""What a reproduction trains: sizes that fit a budget, recorded, and honest about what was reduced."""

import json

import pytest

from ssl_hub.errors import UsageError
from ssl_hub.model.siamese import build
from ssl_hub.tables.paper import TABLES
from ssl_hub.train import begun
from ssl_hub.train.plan import PLAN, Plan, check_budget, sized

LONG = TABLES["long-cifar10"]


def plan(**changed) -> Plan:
    return Plan(
        **{"table": LONG.name, "data": "/d/cifar10", "scale": "mini", "seeds": 2, "budget_minutes": 30.0, **changed}
    )


def fitted(made, *, jobs=2, per_image=1e-3, each=10.0, available=50_000):
    cells = made.chosen(LONG)
    found = sized(made, cells, available=available, seconds_per_image=per_image, seconds_each=each, jobs=jobs)
    seconds = sum(found.images * found.settings(cell).train.epochs * per_image + each for cell in cells) * made.seeds
    return found, seconds / 60 / jobs


@pytest.mark.parametrize("minutes", [12.0, 30.0, 200.0, 5000.0])
@pytest.mark.parametrize("cells", ["*", "*100 epochs"])
def test_mini_fills_its_budget_and_does_not_exceed_it(minutes, cells):
    found, needed = fitted(plan(budget_minutes=minutes, cells=cells))
    assert 0.85 * minutes < needed <= 1.01 * minutes
    assert found.images == -(-50_000 // found.every)
    assert found.images_per_second == 1000.0


def test_longer_cells_stay_longer_by_the_same_factor():
    found, _ = fitted(plan())
    epochs = {cell.column: found.settings(cell).train.epochs for cell in LONG.cells}
    assert epochs["300 epochs"] == 3 * epochs["100 epochs"]
    assert epochs["500 epochs"] == 5 * epochs["100 epochs"]


def test_too_small_a_budget_says_what_is_needed():
    with pytest.raises(UsageError, match="1 minutes are too few for 18 runs, 2 at a time, which need 3 at least"):
        fitted(plan(budget_minutes=1.0))


@pytest.mark.parametrize(
    ("minutes", "message"),
    [
        (float("nan"), "budget_minutes is nan, expected a number above 0"),
        (0.0, "budget_minutes is 0.0, expected a number above 0"),
        (0.5, "0.5 minutes are too few for 18 runs, 2 at a time, which need 1 at least; raise --budget-minutes"),
    ],
)
def test_a_budget_that_nothing_can_meet_is_refused_before_anything_is_measured(minutes, message):
    made = plan(budget_minutes=minutes)
    with pytest.raises(UsageError, match=message):
        check_budget(made, made.chosen(LONG), jobs=2)
    check_budget(plan(), made.chosen(LONG), jobs=2)


@pytest.mark.parametrize("name", TABLES.names())
def test_every_cell_has_a_mini_run_that_changes_only_what_the_plan_says(name):
    reduced = plan(table=name, every=10, images=5000, epochs_share=0.1)
    for cell in TABLES[name].cells:
        recipe, full = reduced.settings(cell), cell.settings()
        assert recipe.optim.lr == full.optim.lr
        assert recipe.optim.weight_decay == full.optim.weight_decay
        assert (recipe.target.kind, recipe.loss) == (full.target.kind, full.loss)
        momenta = [dict(part.target.options).get("momentum") for part in (full, recipe)]
        assert momenta in ([None, None], [0.99, 0.975], [0.996, 0.99])
        assert recipe.train.epochs == max(1, round(full.train.epochs / 10))
        assert recipe.data.train_split == "train[::10]"
        assert reduced.steps(cell) == recipe.train.epochs * (5000 // recipe.train.batch_size)
        assert reduced.protocol(cell) in ("linear-authors-small", "linear-cached")
        build(recipe)
    words = reduced.words()
    for said in ("resnet10_narrow at 32 px", "5,000 training images (one of 10)", "10 % of each cell's epochs"):
        assert said in words


def test_paper_scale_changes_nothing():
    full = plan(scale="paper", budget_minutes=None, images=50_000)
    assert all(full.settings(cell) == cell.settings() for cell in LONG.cells)
    assert all(full.protocol(cell) == cell.protocol for cell in TABLES["imagenet"].cells)


def test_cells_are_chosen_by_a_pattern(tmp_path):
    assert len(plan(cells="*, 100 EPOCHS").chosen(LONG)) == 3
    with pytest.raises(
        UsageError, match="no cell of table 'long-cifar10' matches 'DirectPred, 200 epochs'; did you mean"
    ):
        plan(cells="DirectPred, 200 epochs").chosen(LONG)


def test_plan_is_kept_and_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "deep" / PLAN
    assert begun.read(Plan, path, what="reproduction") is None
    begun.write(path, plan(images=7))
    assert begun.read(Plan, path, what="reproduction") == plan(images=7)
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({**whole, "of_a_newer_version": 1}))
    assert begun.read(Plan, path, what="reproduction") == plan(images=7)
    for text, message in {
        "{": "cannot be read", "\udc80": "cannot be read", "[]": "is no reproduction", '{"x": 1}': "is no reproduction",
        json.dumps({**whole, "scale": "big"}): "is no reproduction: scale is 'big'; choose another --out or repair it",
        json.dumps({**whole, "seeds": None}): "seeds is None",
    }.items():  # fmt: skip
        path.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(UsageError, match=message):
            begun.read(Plan, path, what="reproduction")


def test_command_names_data_and_not_where_it_lies():
    assert plan(cells="*100 epochs").command() == (
        "ssl-hub reproduce long-cifar10 --data cifar10 --scale mini --cells '*100 epochs' --seeds 2 --budget-minutes 30"
    )

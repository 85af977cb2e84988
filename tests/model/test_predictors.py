"""Predictors within a step: what they observe, when they are overwritten, and what they refuse to become."""

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ssl_hub.errors import UsageError
from ssl_hub.model.losses import LOSSES
from ssl_hub.model.parts import part_options
from ssl_hub.model.predictors import PREDICTORS, Predictor
from ssl_hub.model.predictors.computed import SetPredictor
from ssl_hub.model.siamese import Encoder, Siamese, build
from ssl_hub.model.spectrum import eigenvalue_map, newton_schulz, predictor_from_correlation, stiefel_projection
from ssl_hub.model.targets import TARGETS
from ssl_hub.zoo import get_recipe

WIDTH = 8


def make(kind: str, **options: object) -> Predictor:
    return PREDICTORS[kind](WIDTH, **options)


def observe(predictor: Predictor, *views: Tensor, targets: list[Tensor] | None = None) -> None:
    predictor.observe(list(views), list(views) if targets is None else targets)


@pytest.mark.parametrize("kind", PREDICTORS.names())
def test_every_predictor_maps_projections_to_projections_and_lives_a_step(kind):
    predictor = make(kind)
    for step in range(3):
        views = [torch.randn(16, WIDTH), torch.randn(16, WIDTH)]
        observe(predictor, *views)
        assert predictor(views[0]).shape == (16, WIDTH)
        predictor.refresh(step)
    assert all(torch.isfinite(tensor).all() for tensor in predictor.state_dict().values())


@pytest.mark.parametrize("kind", PREDICTORS.names())
def test_every_predictor_with_a_matrix_is_that_matrix(kind):
    predictor, views = make(kind).double(), [torch.randn(16, WIDTH).double() for _ in range(2)]
    observe(predictor, *views)
    predictor.refresh(0)
    if (matrix := predictor.matrix()) is not None:
        said = "forward(f) is f W^T, and matrix() is W"
        torch.testing.assert_close(predictor(views[0]), views[0] @ matrix.mT, msg=lambda found: f"{said}: {found}")


@pytest.mark.parametrize("kind", PREDICTORS.names())
def test_every_predictor_names_its_options_with_types(kind):
    options = part_options("predictor", kind)
    assert all(option is not None for option in options.values())
    if kind == "direct":
        assert {"rho", "eps", "freq", "c", "alpha", "form", "centred", "partitions"} <= options.keys()


@pytest.mark.parametrize("layers", [1, 2])
def test_symmetric_predictor_is_symmetric_after_each_refresh(layers):
    predictor = make("symmetric", layers=layers, hidden_width=12)
    first, last = predictor.linears[0].weight, predictor.linears[-1].weight
    with torch.no_grad():
        first.add_(torch.randn_like(first))
    before = (first + last.mT).detach() / 2
    predictor.refresh(0)
    assert torch.equal(first, last.mT)
    torch.testing.assert_close(first.detach(), before)


def test_direct_takes_both_views_uncentred():
    predictor, views = make("direct"), [torch.randn(16, WIDTH) + 1, torch.randn(16, WIDTH) - 2]
    observe(predictor, *views)
    predictor.refresh(0)
    f = torch.cat(views)
    torch.testing.assert_close(predictor.correlation.value, f.mT @ f / 32)
    torch.testing.assert_close(predictor.matrix(), predictor_from_correlation(f.mT @ f / 32))


def test_centred_direct_subtracts_the_mean():
    predictor, f = make("direct", centred=True), torch.randn(64, WIDTH) + 3
    observe(predictor, f)
    predictor.refresh(0)
    want = predictor_from_correlation(torch.cov(f.mT, correction=0))
    torch.testing.assert_close(predictor.matrix(), want, rtol=1e-3, atol=1e-3)


def test_micro_batches_count_as_one_step():
    whole, parts = make("direct"), make("direct")
    parts.load_state_dict(whole.state_dict())
    for step in range(3):
        f = torch.randn(32, WIDTH)
        observe(whole, f)
        for part in f.chunk(4):
            observe(parts, part)
        whole.refresh(step)
        parts.refresh(step)
    assert int(parts.correlation.seen) == 3
    torch.testing.assert_close(parts.correlation.value, whole.correlation.value)


def test_first_batch_initialises_the_average():
    predictor, first, second = make("direct", rho=0.9), torch.randn(16, WIDTH), torch.randn(16, WIDTH)
    observe(predictor, first)
    predictor.refresh(0)
    torch.testing.assert_close(predictor.correlation.value, first.mT @ first / 16)
    observe(predictor, second)
    predictor.refresh(1)
    torch.testing.assert_close(predictor.correlation.value, 0.9 * first.mT @ first / 16 + 0.1 * second.mT @ second / 16)


def test_freq_sets_when_the_weight_is_overwritten_and_trained():
    every, third, never = make("direct", freq=1), make("direct", freq=3), make("direct", freq=0)
    assert not every.weight.requires_grad  # never trained: no gradient, momentum or decay can touch it
    assert third.weight.requires_grad
    assert [third.overwrites(step) for step in range(7)] == [True, False, False, True, False, False, True]
    assert not any(never.overwrites(step) for step in range(7))
    before = never.weight.detach().clone()
    observe(never, torch.randn(16, WIDTH))
    never.refresh(0)
    assert torch.equal(never.weight, before)


@pytest.mark.parametrize(
    "correlation",
    [
        torch.eye(WIDTH),
        torch.outer(torch.arange(WIDTH) + 1.0, torch.arange(WIDTH) + 1.0),
        1e-30 * torch.eye(WIDTH),
        torch.eye(WIDTH) + 1e-7 * torch.randn(WIDTH, WIDTH),
    ],
    ids=["identity", "rank one", "1e-30", "slightly asymmetric"],
)
def test_ugly_correlation_matrices_give_finite_predictors(correlation):
    predictor = make("direct")
    predictor.correlation.add(correlation, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predictor.refresh(0)
    assert torch.isfinite(predictor.matrix()).all()
    assert predictor.matrix().abs().max() > 0


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("bad", [0.0, float("nan"), float("inf")])
def test_zero_or_non_finite_correlation_keeps_the_previous_weight_and_warns_once(bad):
    predictor = make("direct")
    observe(predictor, torch.randn(16, WIDTH))
    predictor.refresh(0)
    if bad == 0.0:
        predictor.correlation.value.zero_()
        predictor.correlation.rho = 1.0
    before, average = predictor.matrix().detach().clone(), predictor.correlation.value.clone()
    for step in (1, 2):
        observe(predictor, torch.full((16, WIDTH), bad))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            predictor.refresh(step)
        assert len(caught) == (1 if step == 1 else 0)
    assert torch.equal(predictor.matrix(), before)
    assert torch.equal(predictor.correlation.value, average)


def test_discarded_step_leaves_no_trace():
    kept, skipped = make("direct"), make("direct")
    skipped.load_state_dict(kept.state_dict())
    f = torch.randn(16, WIDTH)
    observe(skipped, 100 * torch.randn(16, WIDTH))
    skipped.discard()
    for predictor in (kept, skipped):
        observe(predictor, f)
        predictor.refresh(0)
    assert torch.equal(kept.matrix(), skipped.matrix())


def test_optimal_predictor_minimises_the_regression_error():
    predictor = make("optimal", reg=1e-9, rho=0.0)
    f, true = torch.randn(200, WIDTH), torch.randn(WIDTH, WIDTH)
    observe(predictor, f, targets=[f @ true.mT])
    predictor.refresh(0)
    torch.testing.assert_close(predictor.matrix().detach(), true, rtol=1e-3, atol=1e-3)


def test_partitioned_predictor_by_its_definition():
    predictor = make("direct", partitions=3, rho=0.3)
    views = [torch.randn(40, WIDTH), torch.randn(40, WIDTH) + 0.5]
    observe(predictor, *views)
    want = torch.zeros(40, WIDTH)
    for i in range(3):
        a = predictor.directions[:, i]
        upper_of = [(view @ a) >= (view @ a).mean() for view in views]
        sides = [torch.cat([v[m] for v, m in zip(views, upper_of, strict=True)])]
        sides.append(torch.cat([v[~m] for v, m in zip(views, upper_of, strict=True)]))
        matrices = []
        for side in sides:
            s, u = torch.linalg.eigh(side.mT @ side / len(side))
            matrices.append((u * eigenvalue_map(s, eps=0.1)) @ u.mT)
        for n in range(40):
            want[n] += matrices[0 if upper_of[0][n] else 1] @ views[0][n] / 3
    torch.testing.assert_close(predictor(views[0]), want, rtol=1e-4, atol=1e-4)


def test_partitioned_predictor_of_nan_predicts_nan_once_and_recovers():
    predictor, views = make("direct", partitions=2), [torch.randn(16, WIDTH), torch.randn(16, WIDTH)]
    observe(predictor, *views)
    predictor.refresh(0)
    before = [statistic.value.clone() for statistic in predictor.statistics()]
    observe(predictor, torch.full((16, WIDTH), float("nan")), views[1])
    assert predictor(views[1]).isnan().all()  # the loss is not finite and the step is skipped
    predictor.discard()
    observe(predictor, *views)
    assert predictor(views[1]).isfinite().all()
    assert all(torch.equal(s.value, b) for s, b in zip(predictor.statistics(), before, strict=True))


def test_partitioned_predictor_with_an_empty_side_is_finite():
    predictor = make("direct", partitions=2)
    same = torch.ones(10, WIDTH)  # all at the mean: every lower side is empty
    observe(predictor, same)
    assert torch.isfinite(predictor(same)).all()


def test_statistics_are_float32_under_half_precision():
    predictor = make("direct")
    observe(predictor, (300 * torch.randn(16, WIDTH)).half())
    predictor.refresh(0)
    assert predictor.correlation.value.dtype == torch.float32
    assert predictor.correlation.value.max() > 65504  # beyond half precision


def test_double_precision_is_kept():
    predictor = make("direct").double()
    f = torch.randn(16, WIDTH, dtype=torch.float64)
    observe(predictor, f)
    predictor.refresh(0)
    assert (predictor.correlation.value - f.mT @ f / 16).abs().max() < 1e-14


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("direct", {"rho": 1.5}, r"predictor.rho is 1.5, expected a number in \[0, 1\]"),
        ("direct", {"freq": -1}, "predictor.freq is -1"),
        ("direct", {"alpha": 0.0}, "predictor.alpha is 0.0"),
        ("direct", {"partitions": -2}, "predictor.partitions is -2"),
        ("direct", {"partitions": 6, "freq": 5}, "predictor.partitions needs predictor.freq=1"),
        ("optimal", {"reg": 0.0}, "predictor.reg is 0.0"),
        ("symmetric", {"layers": 3}, "predictor.layers is 3, expected 1 or 2"),
        ("newton_schulz", {"iterations": 0}, "predictor.iterations is 0"),
        ("newton_schulz", {"chained": 9}, "predictor.chained is 9, expected a whole number from 1 to 4"),
        ("stiefel", {"rho": 1.5}, "predictor.rho is 1.5, expected a number from 0 to 1, or none"),
        ("rank_filter", {"power": -1.0}, "predictor.power is -1.0"),
    ],
)
def test_options_out_of_range_are_named(kind, options, message):
    with pytest.raises(UsageError, match=message):
        make(kind, **options)


@pytest.mark.parametrize(("kind", "chained"), [("newton_schulz", 1), ("newton_schulz", 2), ("stiefel", 1)])
def test_iterated_predictors_average_the_predictors_of_batches(kind, chained):
    options = {"chained": chained} if kind == "newton_schulz" else {}
    predictor = make(kind, iterations=5, eps=0.2, rho=0.3, **options).double()
    want = None
    for step in range(3):
        views = [torch.randn(16, WIDTH, dtype=torch.float64) for _ in range(2)]
        observe(predictor, *views)
        predictor.refresh(step)
        z = torch.cat(views)
        batch = z.mT @ z / len(z)
        for _ in range(chained):
            batch = stiefel_projection(batch, 5) if kind == "stiefel" else newton_schulz(batch, 5)[0]
        batch = batch + 0.2 * torch.eye(WIDTH, dtype=torch.float64)
        want = batch if want is None else 0.3 * want + 0.7 * batch
        torch.testing.assert_close(predictor.matrix().detach(), want)


def test_an_iterated_predictor_begins_with_the_first_batch_that_can_be_computed():
    predictor, f = make("newton_schulz", rho=0.9, eps=0.0), torch.randn(16, WIDTH)
    observe(predictor, torch.zeros(16, WIDTH))
    with pytest.warns(UserWarning, match="step 0: the correlation matrix is zero"):
        predictor.refresh(0)
    observe(predictor, f)
    predictor.refresh(1)
    torch.testing.assert_close(predictor.matrix().detach(), newton_schulz(f.mT @ f / 16, 9)[0])


@pytest.mark.parametrize("count", [5, 20])  # fewer samples than dimensions, and more
@pytest.mark.parametrize(
    ("options", "gain"),
    [
        ({"power": 1.0}, lambda s: s),
        ({"power": 0.5}, np.sqrt),
        ({"function": "log1p"}, lambda s: np.log(1 + s)),
        ({"function": "log1p_square"}, lambda s: np.log(1 + s**2)),
    ],
)
def test_rank_filter_is_a_function_of_each_views_own_singular_values(options, gain, count):
    predictor, views = make("rank_filter", **options), [torch.randn(count, WIDTH, dtype=torch.float64) for _ in "12"]
    observe(predictor, *views)
    for view in reversed(views):
        _, s, rows = np.linalg.svd(view.numpy(), full_matrices=False)
        torch.testing.assert_close(predictor(view), view @ torch.from_numpy((rows.T * gain(s)) @ rows))
    with pytest.raises(UsageError, match="predicts only the views it has observed"):
        predictor(views[0].clone())


def test_rank_filter_of_power_one_predicts_as_directpred_of_one_batch_without_eps():
    ranked, direct = make("rank_filter"), make("direct", rho=0.0, eps=0.0)
    f = torch.randn(20, WIDTH)
    for predictor in (ranked, direct):
        observe(predictor, f)
    direct.refresh(0)
    torch.testing.assert_close(
        nn.functional.normalize(ranked(f), dim=1), nn.functional.normalize(direct(f), dim=1).detach()
    )


class Products(TorchDispatchMode):
    """The precision that each product of matrices is allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in ("mm", "bmm", "addmm", "baddbmm", "mv", "dot"):
            self.allowed.append(torch.get_float32_matmul_precision())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in PREDICTORS.names()),
        ("direct", {"centred": True}),
        ("direct", {"solver": "iteration"}),
        ("direct", {"partitions": 2}),
        ("direct", {"partitions": 2, "solver": "iteration"}),
    ],
)
def test_f_and_its_predictor_never_see_tf32(kind, options):
    predictor, before = make(kind, **options), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with Products() as products:
            observe(predictor, torch.randn(16, WIDTH), torch.randn(16, WIDTH))
            predictor.refresh(0)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    assert set(products.allowed) <= {"highest"}
    assert products.allowed or not isinstance(predictor, SetPredictor)


def test_mlp_has_bn_and_relu_inside_and_nothing_behind():
    layers = list(make("mlp", hidden_width=12).layers)
    assert [type(layer) for layer in layers] == [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear]


def test_byols_heads_have_no_bias_at_the_end():
    recipe = get_recipe("byol-r50-300ep", **{"backbone.name": "test_resnet", "views.size": 32})
    model = build(recipe)
    for layers in (model.encoder.projector, model.predictor.layers):
        assert [layer.bias is not None for layer in layers if isinstance(layer, nn.Linear)] == [True, False]


def test_linear_has_no_bias_unless_asked():
    assert make("linear").linear.bias is None
    assert make("linear", bias=True).linear.bias.shape == (WIDTH,)


@pytest.mark.parametrize("said", ["no type", r"no \* before it"])
def test_an_option_that_a_recipe_cannot_set_is_named(said, monkeypatch):
    class Untyped(Predictor):
        def __init__(self, width: int, *, start=1.0) -> None:
            super().__init__()

    class Positional(Predictor):
        def __init__(self, width: int, start: float = 1.0) -> None:
            super().__init__()

    monkeypatch.setitem(PREDICTORS._entries, "mine", Untyped if said == "no type" else Positional)
    with pytest.raises(
        UsageError, match=rf"'start' of predictor 'mine' is no option of a recipe: it has {said}; write `\*, start"
    ):
        part_options("predictor", "mine")


def test_a_prediction_of_another_shape_is_an_error_and_not_broadcast(monkeypatch):
    class OneNumber(Predictor):
        def forward(self, f: Tensor) -> Tensor:
            return f[:, :1]

    model = Siamese(Encoder(nn.Identity(), nn.Identity()), OneNumber(), TARGETS["stopgrad"](), LOSSES["cosine"]())
    with pytest.raises(UsageError, match=r"OneNumber makes \[4, 1\] of projections \[4, 8\]; a predictor's forward "):
        model(torch.randn(4, WIDTH), torch.randn(4, WIDTH))

"""Solvers: exact solutions, the grid against single trajectories, reports and errors."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from ssl_hub.errors import UsageError
from ssl_hub.theory.decoupled import DecoupledEmaFlow, DecoupledFlow, ParabolaFlow
from ssl_hub.theory.dynamics import ByolFlow, NoPredictorFlow, as_isotropic
from ssl_hub.theory.integrate import BLOCK, simulate


@pytest.mark.parametrize("stacked", [False, True])
def test_linear_flow_against_the_matrix_exponential(stacked):
    rng = np.random.default_rng(0)
    Xprime, W = np.diag([0.1, 0.5, 2.0]), rng.standard_normal((2, 3))
    init = np.stack([W, 2 * W]) if stacked else W
    path = simulate(NoPredictorFlow(Xprime=Xprime, eta=0.05), {"W": init}, [0.0, 1.0, 30.0])
    for t, got in zip(path.t, path["W"], strict=True):
        expected = init @ expm(-(Xprime + 0.05 * np.eye(3)) * t)
        np.testing.assert_allclose(got, expected, atol=1e-13)


def test_grid_equals_scipy_at_every_time_and_a_trajectory_alone():
    flow = DecoupledEmaFlow(sigma2=0.3, alpha_p=2.0, eta=0.04, beta=0.4)
    rng = np.random.default_rng(1)
    p, s = rng.uniform(0, 1.5, (2, 3, 4))
    times = np.array([0.5, 10.0, 100.0])
    grid = simulate(flow, {"p": p, "s": s, "tau": 0.0}, times)
    assert grid["p"].shape == (3, 3, 4)
    for index in [(0, 0), (1, 2), (2, 3)]:
        start = [p[index], s[index], 0.0]
        for place, t in enumerate(times):
            known = solve_ivp(lambda _, y: flow.velocity(*y), (0.0, t), start, "DOP853", rtol=1e-12, atol=1e-14)
            got = [grid[name][(place, *index)] for name in flow.state_names]
            np.testing.assert_allclose(got, known.y[:, -1], atol=2e-11)
        one = simulate(flow, {"p": p[index], "s": s[index], "tau": 0.0}, times)
        np.testing.assert_allclose(grid["p"][(slice(None), *index)], one["p"], atol=1e-13)


def test_matrix_grid_equals_single_trajectories():
    flow = ByolFlow(**as_isotropic(4, 0.2), alpha_p=2.0, beta=0.3, eta=0.02)
    rng = np.random.default_rng(2)
    Wp, W = rng.standard_normal((5, 3, 3)) / 2, rng.standard_normal((5, 3, 4)) / 2
    grid = simulate(flow, {"Wp": Wp, "W": W, "Wa": np.zeros((3, 4))}, [20.0])
    one = simulate(flow, {"Wp": Wp[3], "W": W[3], "Wa": np.zeros((3, 4))}, [20.0])
    for name in flow.state_names:
        np.testing.assert_allclose(grid[name][:, 3], one[name], atol=1e-11)


def test_blocks_are_joined_in_order():
    p = np.linspace(0.0, 1.2, BLOCK + 7)
    path = simulate(ParabolaFlow(eta=0.1), {"p": p}, [3.0], rtol=1e-8, atol=1e-10)
    assert np.all(np.diff(path["p"][-1]) > 0)  # a one-dimensional flow keeps the order of its trajectories
    one = simulate(ParabolaFlow(eta=0.1), {"p": p[-1]}, [3.0])
    assert abs(path["p"][-1, -1] - one["p"][-1]) < 1e-8


@pytest.mark.parametrize("rtol", [1e-6, 1e-9, 1e-12])
def test_error_follows_the_tolerance(rtol):
    flow = DecoupledFlow(eta=0.01)
    init = {"p": np.array([0.2, 1.3]), "s": np.array([0.3, 0.1])}
    exact = simulate(flow, init, [30.0])
    got = simulate(flow, init, [30.0], rtol=rtol, atol=1e-2 * rtol)
    assert np.abs(got["p"] - exact["p"]).max() < 100 * rtol


def test_stiff_path_agrees_over_a_long_time():
    flow = DecoupledEmaFlow(sigma2=0.1, eta=4e-4, beta=0.01)
    init = {"p": 0.2, "s": 0.1, "tau": 1.0}
    long = simulate(flow, init, [0.0, 50.0, 2000.0], rtol=1e-10, atol=1e-13, stiff=True)
    exact = simulate(flow, init, [0.0, 50.0, 2000.0])
    assert max(np.abs(long[name] - exact[name]).max() for name in flow.state_names) < 1e-6
    with pytest.raises(UsageError, match=r"one trajectory; got a grid of shape \(2,\)"):
        simulate(flow, {**init, "p": [0.1, 0.2]}, [1.0], stiff=True)


def test_a_solution_that_ceases_to_exist_is_nan_and_leaves_its_neighbours_alone():
    flow = DecoupledEmaFlow(beta=0.4)  # p < 0 < wa takes w through 0, where tau = wa / w has a pole
    init = {"p": np.array([-0.5, 0.5]), "s": np.array([0.01, 0.3]), "tau": np.array([1.0, 1.0])}
    path = simulate(flow, init, [0.1, 100.0])
    np.testing.assert_array_equal(np.isnan(path["p"]), [[False, False], [True, False]])


def test_times_may_be_zero_alone():
    for p in (0.3, [0.3, 0.4]):
        assert np.all(simulate(ParabolaFlow(), {"p": p}, [0.0])["p"][0] == p)


@pytest.mark.parametrize(
    ("init", "times", "message"),
    [
        ({"p": 0.1}, [1.0], "got initial values for p; expected exactly p, s"),
        ({"p": 0.1, "s": 0.1, "q": 0.0}, [1.0], "got initial values for p, q, s"),
        ({"p": 0.1, "s": np.nan}, [1.0], "initial s holds a value that is not finite"),
        ({"p": [0.1, 0.2], "s": [0.1, 0.2, 0.3]}, [1.0], "do not broadcast"),
        ({"p": 0.1, "s": 0.1}, [2.0, 1.0], r"t_eval is \[2\. 1\.\]; expected increasing"),
        ({"p": 0.1, "s": 0.1}, [-1.0], "expected increasing finite times from 0 on"),
        ({"p": 0.1, "s": 0.1}, [], "expected increasing finite times"),
    ],
)
def test_wrong_input_is_named(init, times, message):
    with pytest.raises(UsageError, match=message):
        simulate(DecoupledFlow(), init, times)


def test_unknown_state_of_a_trajectory_is_named():
    path = simulate(ParabolaFlow(), {"p": 0.1}, [1.0])
    with pytest.raises(UsageError, match="no state 'tau'; it has p"):
        path["tau"]

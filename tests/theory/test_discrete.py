"""Discrete time: Euler, and the training step against torch's own optimiser and autograd."""

import numpy as np
import pytest
import torch

from ssl_hub.errors import UsageError
from ssl_hub.theory.decoupled import DecoupledEmaFlow, ParabolaFlow
from ssl_hub.theory.discrete import LinearTraining, euler, population_moments, squared_error
from ssl_hub.theory.dynamics import ByolFlow
from ssl_hub.theory.integrate import simulate


def start(seed=0, n1=6, n2=4):
    rng = np.random.default_rng(seed)
    return {
        "W": rng.standard_normal((n2, n1)) / 2,
        "Wp": rng.standard_normal((n2, n2)) / 2,
        "Wa": rng.standard_normal((n2, n1)) / 2,
    }


def batches(count, seed=1, size=5, n1=6):
    return np.random.default_rng(seed).standard_normal((count, 2, size, n1))


class TorchTraining:
    """The training loop with torch's SGD and autograd, to compare with."""

    def __init__(self, W, Wp, Wa, *, lr, alpha_p=1.0, momentum, weight_decay, ema_m, loss):
        self.W, self.Wp = (torch.tensor(m, requires_grad=True) for m in (W, Wp))
        self.Wa, self.ema_m, self.loss = torch.tensor(Wa), ema_m, loss
        groups = [{"params": [self.W]}, {"params": [self.Wp], "lr": lr * alpha_p}]
        self.optimizer = torch.optim.SGD(groups, lr=lr, momentum=momentum, weight_decay=weight_decay)

    def step(self, x1, x2, after=lambda f: None):
        f = [torch.from_numpy(x) @ self.W.T for x in (x1, x2)]
        q = [one @ self.Wp.T for one in f]
        t = [torch.from_numpy(x) @ self.Wa.T for x in (x2, x1)]
        if self.loss == "cosine":
            loss = sum(-2 * torch.cosine_similarity(a, b, dim=1, eps=0.0).mean() for a, b in zip(q, t, strict=True))
        else:
            loss = sum(((a - b) ** 2).sum(1).mean() / 4 for a, b in zip(q, t, strict=True))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            after(torch.cat(f).detach())
            self.Wa = self.ema_m * self.Wa + (1 - self.ema_m) * self.W
        return float(loss.detach())


@pytest.mark.parametrize("loss", ["cosine", "squared"])
@pytest.mark.parametrize("predictor", ["regular", "symmetric"])
def test_step_equals_torch(loss, predictor):
    settings = {"lr": 0.05, "alpha_p": 3.0, "momentum": 0.9, "weight_decay": 0.01, "ema_m": 0.97, "loss": loss}
    ours, theirs = LinearTraining(**start(), predictor=predictor, **settings), TorchTraining(**start(), **settings)

    def symmetrise(_):
        if predictor == "symmetric":
            theirs.Wp.copy_((theirs.Wp + theirs.Wp.T) / 2)

    for x1, x2 in batches(10):
        assert ours.step(x1, x2) == pytest.approx(theirs.step(x1, x2, symmetrise), abs=1e-12)
        for name in ("W", "Wp", "Wa"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name).detach().numpy(), atol=1e-12)


@pytest.mark.parametrize("freq", [1, 3])
def test_direct_predictor_is_set_after_the_step_and_trained_in_between(freq):
    settings = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "ema_m": 0.97, "loss": "cosine"}
    ours = LinearTraining(**start(), predictor="direct", freq=freq, rho=0.3, eps=0.1, **settings)
    theirs, F = TorchTraining(**start(), **settings), None
    for iteration, (x1, x2) in enumerate(batches(7)):

        def refresh(f, iteration=iteration):
            nonlocal F
            batch = f.T @ f / len(f)
            F = batch if F is None else 0.3 * F + 0.7 * batch
            if iteration % freq == 0:
                s, U = torch.linalg.eigh(F)
                theirs.Wp.copy_((U * (torch.sqrt(s / s.max()) + 0.1)) @ U.T)

        theirs.step(x1, x2, refresh)
        ours.step(x1, x2)
        np.testing.assert_allclose(ours.F, F.numpy(), atol=1e-12)
        np.testing.assert_allclose(ours.Wp, theirs.Wp.detach().numpy(), atol=1e-10)
        assert (np.abs(ours.Wp - ours.Wp.T).max() < 1e-12) == (iteration % freq == 0)


def test_scale_of_a_predictor_that_is_always_set_does_not_matter():
    """With the cosine loss and freq 1, W follows the same path whatever positive number multiplies F."""
    run = LinearTraining(**start(), predictor="direct", lr=0.05, ema_m=0.97)
    scaled = LinearTraining(**start(), predictor="direct", lr=0.05, ema_m=0.97)
    for x1, x2 in batches(5):
        run.step(x1, x2)
        scaled.step(x1, x2)
        scaled.Wp = 7.0 * scaled.Wp
    np.testing.assert_allclose(run.W, scaled.W, atol=1e-12)


def test_squared_loss_on_one_batch_descends_lemma_1():
    """A gradient step on a batch is an Euler step of Lemma 1 with the batch's own moments; the EMA takes the new W."""
    x1, x2 = batches(1)[0]
    X, Xprime = population_moments(x1, x2)
    alpha, beta = 0.01, 0.4
    run = LinearTraining(**start(), lr=alpha, alpha_p=2.0, weight_decay=0.05, ema_m=1 - alpha * beta, loss="squared")
    flow = ByolFlow(X=X, Xprime=Xprime, alpha_p=2.0, beta=beta, eta=0.05)
    state = start()
    for _ in range(20):
        dWp, dW, _ = flow.velocity(state["Wp"], state["W"], state["Wa"])
        loss = run.step(x1, x2)
        assert loss == pytest.approx(float(squared_error(state["Wp"], state["W"], state["Wa"], X, Xprime)), abs=1e-12)
        # weight decay of the predictor is scaled by its learning rate, as in SGD: eta_p = alpha_p eta
        state["Wp"] = state["Wp"] + alpha * (dWp - (2.0 - 1.0) * 0.05 * state["Wp"])
        state["W"] = state["W"] + alpha * dW
        state["Wa"] = state["Wa"] + alpha * beta * (state["W"] - state["Wa"])
        for name, value in state.items():
            np.testing.assert_allclose(getattr(run, name), value, atol=1e-13)


def test_euler_converges_at_first_order_and_takes_grids():
    flow = DecoupledEmaFlow(sigma2=0.3, eta=0.04, beta=0.4)
    init = {"p": np.array([0.3, 0.6]), "s": 0.2, "tau": 0.0}
    exact = simulate(flow, init, [4.0])["p"][0]
    errors = [np.abs(euler(flow, init, alpha, [round(4.0 / alpha)])["p"][0] - exact).max() for alpha in (0.02, 0.01)]
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.05)
    path = euler(flow, init, 0.1, [0, 5])
    np.testing.assert_array_equal(path["p"][0], init["p"])
    np.testing.assert_allclose(path.t, [0.0, 0.5])


def test_effective_learning_rate_with_momentum():
    """After its start, SGD with momentum m follows the flow with alpha = lr / (1 - m), as `predict` assumes."""
    x1, x2 = batches(1)[0]
    X, Xprime = population_moments(x1, x2)
    run = LinearTraining(**start(), lr=1e-4, momentum=0.9, ema_m=1.0, loss="squared", weight_decay=0.1)
    for _ in range(3000):
        run.step(x1, x2)
    flow = ByolFlow(X=X, Xprime=Xprime, beta=0.0, eta=0.1)
    exact = simulate(flow, start(), [3000 * 1e-3])
    np.testing.assert_allclose(run.W, exact["W"][0], atol=5e-3)
    assert np.abs(run.W - simulate(flow, start(), [3000 * 1e-4])["W"][0]).max() > 0.05


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: euler(ParabolaFlow(), {"p": 0.1}, 0.0, [1]), "alpha is 0.0; expected a positive"),
        (lambda: euler(ParabolaFlow(), {"p": 0.1}, 0.1, [5, 5]), r"steps is \[5, 5\]; expected increasing"),
        (lambda: LinearTraining(**{**start(), "Wa": np.eye(4)}, lr=0.1), r"Wa \(4, 4\); expected"),
        (lambda: LinearTraining(**start(), lr=0.1, predictor="mlp"), "unknown predictor 'mlp'"),
        (lambda: LinearTraining(**start(), lr=0.1, loss="l1"), "unknown loss 'l1'"),
    ],
)
def test_wrong_input_is_named(make, message):
    with pytest.raises(UsageError, match=message):
        make()

# %% [markdown]
# # Why does it not collapse? A tour of the theory in nine stops
#
# BYOL and SimSiam pull two views of an image together and push nothing apart. Mapping every image to one point is a
# perfect solution of that task, and yet training does not find it. This tour follows the linear theory of Tian, Chen
# and Ganguli (ICML 2021) from the equations to DirectPred, by simulating each claim. Read it, run it
# (`python docs/theory_tour.py`), or open it as a notebook: the `# %%` marks are cells. `--fast` takes a few seconds.

# %%
from __future__ import annotations

import sys

import numpy as np

from ssl_hub.theory import LinearTraining, euler, flow_units, law, simulate, theorems
from ssl_hub.theory.decoupled import DecoupledEmaFlow, DecoupledFlow, K_eigenvalue, integral_of_motion
from ssl_hub.theory.derived import normalised_commutator
from ssl_hub.theory.discrete import direct_predictor
from ssl_hub.theory.dynamics import ByolFlow, PredictorCorrelationFlow, SimSiamFlow, as_isotropic
from ssl_hub.theory.fixed_points import (
    collapses_without_decay,
    decoupled_fixed_points,
    minimal_surviving_p,
    parabola_thresholds,
)
from ssl_hub.theory.observations import random_pair
from ssl_hub.theory.prediction import PredictorRule, Setting
from ssl_hub.theory.scrambling import additive_scrambling

FAST = "--fast" in sys.argv
rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. The setting
# The online network is a matrix W, the predictor Wp, the target Wa. Two views x1, x2 of an image share their average
# xbar; X = E[xbar xbar^T] is what they have in common, X' the covariance that augmentation adds. Minimising
# |Wp W x1 - stopgrad(Wa x2)|^2 / 2 by gradient flow gives Lemma 1. Its velocities are gradients: autograd agrees.

# %%
n1, n2, sigma2 = 6, 4, 0.3
flow = ByolFlow(**as_isotropic(n1, sigma2), alpha_p=1.0, beta=0.4, eta=0.02)
Wp, W, Wa = (rng.standard_normal(shape) / 2 for shape in ((n2, n2), (n2, n1), (n2, n1)))
lemma = theorems.lemma1(flow, Wp, W, Wa)
print(f"1. Lemma 1 against autograd: relative difference {lemma.measured:.1e}")
assert lemma.holds

# %% [markdown]
# ## 2. Without the stop-gradient it does collapse (Theorem 2)
# Then vec(W)' = -H vec(W) with a positive semi-definite H: W can only shrink.

# %%
start = {"Wp": np.eye(n2) / 2, "W": W}
times = np.linspace(0, 30, 61)
sizes = {}
for stop_gradient in (True, False):
    siam = SimSiamFlow(**as_isotropic(n1, sigma2), eta=0.02, stop_gradient=stop_gradient)
    sizes[stop_gradient] = np.linalg.norm(simulate(siam, start, times)["W"], axis=(1, 2))
print(f"2. |W| at t = 30: {sizes[True][-1]:.3f} with the stop-gradient, {sizes[False][-1]:.1e} without")
assert sizes[True][-1] > 0.5 and sizes[False][-1] < 1e-2

# %% [markdown]
# ## 3. What the predictor learns, the network learns (Theorem 1)
# W W^T - Wp^T Wp / alpha_p decays as e^{-2 eta t}, whatever the target does. So weight decay makes F = W W^T follow the
# predictor. This needs one decay for both networks and small steps; see what happens otherwise.

# %%
init = {"Wp": Wp, "W": W, "Wa": Wa}
grid = np.linspace(0, 20, 81)
exact = theorems.theorem1(simulate(flow, init, grid))
stepped = theorems.theorem1(euler(flow, init, 0.03, range(0, 600, 20)))
print(f"3. defect of Theorem 1: {exact.measured:.1e} in continuous time, {stepped.measured:.1e} with steps of 0.03")
assert exact.holds and not stepped.holds

# %% [markdown]
# ## 4. Eigenspaces align (Theorem 3)
# With a symmetric predictor the commutator L = [F, Wp] obeys L' = -LK - KL. Where K is positive definite, L dies: F and
# Wp come to share their eigenvectors. Watch the normalised commutator, since L also dies when everything shrinks.

# %%
Wp0, F0 = random_pair(8, 0)
pair = simulate(PredictorCorrelationFlow(sigma2=0.0009), {"Wp": Wp0, "F": F0}, np.linspace(0, 40, 161), rtol=1e-9)
history = theorems.alignment_history(pair)
print(f"4. |L| rises to {history.norm.max() / history.norm[0]:.2f} of its start while K has a negative eigenvalue")
first, last = history.normalised[[0, -1]]
print(f"   ({history.least_K.min():.2f}); misalignment goes from {first:.2f} to {last:.0e}")
assert last < 1e-4 * first
assert np.allclose(history.normalised, normalised_commutator(pair["Wp"], pair["F"]))

# %% [markdown]
# ## 5. One mode at a time
# Aligned, each eigenvalue pair obeys p' = alpha_p s (tau - kp) - eta p and s' = 2ps (tau - kp) - 2 eta s, with
# k = 1 + sigma^2. Without decay s - p^2/alpha_p is conserved, and the plane splits exactly into modes that collapse and
# modes that live.

# %%
side = 12 if FAST else 40
p0, s0 = (axis.ravel() for axis in np.meshgrid(np.linspace(-0.9, 1.4, side), np.linspace(0.03, 1.4, side)))
free = simulate(DecoupledFlow(), {"p": p0, "s": s0}, [0.0, 1000.0], rtol=1e-8, atol=1e-12)
collapsed = free["s"][-1] < 1e-4
predicted = collapses_without_decay(p0, s0)
drift = np.abs(np.diff(integral_of_motion(free["p"], free["s"], alpha_p=1.0), axis=0)).max()
print(f"5. {collapsed.mean():.0%} of a grid collapses; the formula is right for {np.mean(collapsed == predicted):.1%};")
print(f"   the conserved quantity drifts by {drift:.0e}")
assert np.mean(collapsed == predicted) > 0.99

# %% [markdown]
# ## 6. Weight decay: friend and foe
# With decay every mode ends at 0 or on the parabola s = p^2/alpha_p, at p_+. Between them sits the saddle p_-: decay
# erases the initial condition (good), but widens the basin of 0 (bad), and above tau^2/4k nothing survives (worse).

# %%
for eta in (0.01, 0.1, 0.3):
    points = decoupled_fixed_points(DecoupledFlow(eta=eta))
    print(f"6. eta = {eta}: " + ", ".join(f"p = {q.state['p']:.3f} ({q.stability})" for q in points))
assert parabola_thresholds(sigma2=0.0, eta=0.3).collapse_is_certain

# %% [markdown]
# ## 7. A slow target is a curriculum
# The target sets tau = w_a / w. Started from 0 it gives the predictor a small goal first, which keeps K higher on the
# way: alignment is more stable. It also learns later and traps more modes. A target that is *copied* at the start, as
# BYOL does, has tau(0) = 1, and little of this.

# %%
for tau0 in (0.0, 1.0):
    byol = DecoupledEmaFlow(sigma2=0.0009, eta=0.04, beta=0.4)
    path = simulate(byol, {"p": 0.2, "s": 0.04, "tau": tau0}, np.linspace(0, 60, 301))
    K = K_eigenvalue(path["p"], path["s"], sigma2=0.0009, alpha_p=1.0, eta=0.04, tau=path["tau"])
    edge = minimal_surviving_p(sigma2=0.0009, eta=0.04, beta=0.1, tau0=tau0)
    print(f"7. tau(0) = {tau0:.0f}: least K {K.min():+.3f}; with beta = 0.1, p(0) must exceed {edge:.4f}")

# %% [markdown]
# ## 8. What is learned, on data that is not isotropic
# Without isotropy the features are eigenvectors of Sigma^d (Sigma^s)^{-1}: what two views share, relative to what one
# view contains. Directions that augmentation disturbs less come first, whatever their variance.

# %%
variance, noise = np.array([4.0, 1.0, 0.25]), np.array([4.0, 0.1, 0.05])
values, _ = additive_scrambling(np.diag(variance), np.diag(noise)).features
print(f"8. shares kept, largest first: {np.round(values, 2)}; the direction of largest variance comes last")
assert np.allclose(values, np.sort(variance / (variance + noise))[::-1])

# %% [markdown]
# ## 9. DirectPred: skip the predictor's dynamics
# Theory says where the predictor ends: the eigenvectors of F, with eigenvalues proportional to sqrt(s). DirectPred puts
# it there, from a running average of F, after every step. Here is the training loop itself, on a linear network.

# %%
run = LinearTraining(
    W=rng.standard_normal((4, 8)) / 3, Wp=np.eye(4), Wa=np.zeros((4, 8)) + 0.1, lr=0.05, ema_m=0.99, predictor="direct"
)
losses = []
for _ in range(100 if FAST else 600):
    xbar = rng.standard_normal((64, 8)) * np.array([2, 2, 1, 1, 0.3, 0.3, 0.1, 0.1])
    losses.append(run.step(*(xbar + 0.3 * rng.standard_normal(xbar.shape) for _ in range(2))))
assert run.F is not None
spectrum = np.linalg.eigvalsh(run.F)
print(f"9. loss {losses[0]:.2f} -> {losses[-1]:.2f}; F has eigenvalues {np.round(spectrum, 3)}")
assert losses[-1] < losses[0] and np.allclose(run.Wp, direct_predictor(run.F, eps=run.eps))

# %% [markdown]
# ## And a real recipe?
# SGD's weight decay *is* the eta of the flow, and one step advances its time by lr / (1 - momentum). With the cosine
# for a loss, which directions live is a matter of eps alone. `ssl-hub theory predict RECIPE` says the same of a recipe.

# %%
units = flow_units(lr=0.03, momentum=0.9, weight_decay=4e-4, ema_m=0.996)
rule = PredictorRule(kind="set", eps=0.1, rho=0.3)
print("\n".join(law(Setting(units=units, rate=4.0, loss="normalised", predictor=rule, target="ema"))))

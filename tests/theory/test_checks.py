"""The ten observations and the whole check: verdicts, numbers, and what is printed."""

import io
import re

import numpy as np
import pytest

from ssl_hub.theory import observations
from ssl_hub.theory.checks import check, row

VERDICTS = {f"Obs {n}": "holds only where" if n in (6, 7, 8) else "holds" for n in range(1, 11)}
EXCEPTIONS = {  # what the paper says, or would seem to say, and what does not hold
    "the same with eta_p != eta_s",
    "the same in discrete time",
    "the same under Assumption 3",
    "W(t) always goes to 0",
    "a vanishing commutator means alignment",
    "the printed Sigma^s = Sigma^x",
}


@pytest.fixture(scope="module")
def report():
    out = io.StringIO()
    return check(out=out), out.getvalue()


def test_every_statement_has_its_verdict(report):
    results, _ = report
    assert {r.name: r.verdict for r in results if r.name.startswith("Obs")} == VERDICTS
    theorems = [r for r in results if not r.name.startswith("Obs")]
    assert {r.statement for r in theorems if r.verdict != "holds"} == EXCEPTIONS
    assert all(np.isfinite(r.measured) for r in results)


def test_every_row_is_printed_with_numbers(report):
    results, text = report
    assert text == "".join(f"{row(result)}\n" for result in results)
    assert "Lemma 1      holds" in text and "(bound 1.0e-11)" in text


def test_a_row_without_an_assumption_fails_as_it_should(report):
    results, text = report
    assert {r.statement for r in results if r.dropped} == EXCEPTIONS - {"the printed Sigma^s = Sigma^x"}
    assert "fails without: one eta for both networks, as it should\n" in text
    assert text.count("does not hold") == 1


def test_observation_1_counts_the_known_basin():
    """At alpha_p = 1 and eta = 0 the shares agree with the closed-form basin."""
    result = observations.observation_1(alpha_ps=(1, 5))
    shares = [float(share) for share in re.findall(r"0\.\d+", result.where)]
    p, s = np.meshgrid(np.linspace(-1.0, 1.5, 26), np.linspace(0.02, 1.5, 24))
    basin = np.where(p <= 0, p**2, p**2 - 1)
    assert shares[0] == pytest.approx((s <= basin).mean(), abs=2e-3)
    assert shares[1] == pytest.approx((s <= basin / 5).mean(), abs=2e-3)


def test_observation_5_threshold_moves_with_tau_and_sigma():
    assert "threshold 0.1" in observations.observation_5(sigma2=0.6, tau=0.8).where


def test_observation_7_would_not_hold_with_the_order_reversed():
    assert observations.observation_7(etas=(0.05, 0.0)).verdict == "does not hold"


def test_observation_8_depends_on_the_target_starting_small():
    result = observations.observation_8()
    assert result.verdict == "holds only where"
    assert "least K -0.0447 against -0.107 without EMA" in result.where
    assert "reduced, not removed" in result.where
    assert "positive" in observations.observation_8(eta=0.12).where


def test_observations_9_and_10_reverse_with_the_order_of_beta():
    assert observations.observation_9(betas=(1, 0.4)).verdict == "does not hold"
    assert observations.observation_10(betas=(1, 0.4)).verdict == "does not hold"


def test_random_pair_is_symmetric_and_not_aligned():
    Wp, F = observations.random_pair(6, 0)
    np.testing.assert_array_equal(Wp, Wp.T)
    assert np.linalg.eigvalsh(F)[0] > 0
    assert np.linalg.norm(F @ Wp - Wp @ F) > 0.1 * np.linalg.norm(F) * np.linalg.norm(Wp)

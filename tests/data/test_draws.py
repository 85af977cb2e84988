"""Draws are pure functions of their counters, uniform, and unrelated between neighbours."""

import numpy as np
import pytest

from ssl_hub.data.draws import hashed, permutation, uniforms


def test_splitmix64_reference_values() -> None:
    # The first outputs of the published generator with seed 0 are those of absorbing 0, since state 0 is xored with it.
    assert int(hashed(0)[0]) == 0xE220A8397B1DCDAF
    assert int(hashed(0x9E3779B97F4A7C15)[0]) == 0x6E789E6AA1B965F4


def test_values_do_not_depend_on_company() -> None:
    together = uniforms(3, 5, np.arange(10)[:, None], np.arange(7)[None])
    assert together.shape == (10, 7)
    assert together[4, 6] == uniforms(3, 5, np.array([4]), np.array([6]))[0] == uniforms(3, 5, 4, 6)[0]


def test_uniform_and_uncorrelated() -> None:
    draws = uniforms(0, 1, np.arange(20_000)[:, None], np.arange(3)[None])
    assert draws.min() >= 0 and draws.max() < 1
    assert np.histogram(draws, bins=10, range=(0, 1))[0] == pytest.approx(np.full(10, 6000), rel=0.06)
    columns = np.corrcoef(draws.T)
    assert np.abs(columns - np.eye(3)).max() < 0.03
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 0.03


def test_counters_do_not_swap() -> None:
    assert hashed(1, 2) != hashed(2, 1)
    assert hashed(-1) == hashed(2**64 - 1)  # any integer is a seed


@pytest.mark.parametrize("length", [0, 1, 2, 1000])
def test_permutation(length: int) -> None:
    order = permutation(length, 7, 0)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(length))
    assert length < 2 or order.tolist() == permutation(length, 7, 0).tolist()
    assert length < 1000 or order.tolist() != permutation(length, 7, 1).tolist()

"""The protocols are what their sources print, and their settings are checked before anything runs."""

import math
from itertools import permutations

import pytest

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.protocols import PROTOCOLS, Cached, get_protocol


def test_what_the_sources_print():
    byol, simsiam, small = (PROTOCOLS[name] for name in ("byol", "simsiam", "authors-small"))
    assert byol.lrs == (0.4, 0.3, 0.2, 0.1, 0.05)
    assert (byol.optimizer, byol.momentum, byol.epochs, byol.batch_size) == ("sgd", 0.9, 80, 1024)
    assert byol.reference_batch == byol.batch_size  # the printed rates are those used
    assert byol.weight_decay == 0 and round(byol.holdout * 1_281_167) == 10_009
    assert (simsiam.optimizer, simsiam.lrs, simsiam.reference_batch) == ("lars", (0.1,), 256)
    assert (simsiam.epochs, simsiam.batch_size, simsiam.weight_decay, simsiam.schedule) == (90, 4096, 0, "cosine")
    assert (small.optimizer, small.lrs, small.weight_decay) == ("adam", (3e-4,), 1e-3)
    assert (small.epochs, small.batch_size, small.images, small.schedule) == (50, 128, "cached", "constant")
    assert len(PROTOCOLS["cached"].strengths) == 8


def test_settings_are_overridden_by_text():
    changed = get_protocol("byol", {"epochs": "1", "lrs": "[0.1, 0.2]", "schedule": "constant"})
    assert (changed.epochs, changed.lrs, changed.schedule) == (1, (0.1, 0.2), "constant")
    assert changed.batch_size == 1024


@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("bylo", {}, "unknown protocol 'bylo'; did you mean 'byol'"),
        ("byol", {"epoch": "1"}, "unknown setting 'epoch'; did you mean 'epochs'"),
        ("byol", {"epochs": "many"}, "epochs is 'many', expected int"),
        ("byol", {"epochs": "0"}, "epochs is 0, expected a whole number of at least 1"),
        ("byol", {"lrs": "[]"}, r"lrs are \[\], expected one or more numbers above 0"),
        ("byol", {"lrs": "[0.1, -1]"}, r"lrs are \[0\.1, -1\.0\]"),
        ("simsiam", {"lrs": "[0.1, 0.2]"}, "holdout is 0.0 for 2 learning rates"),
        ("simsiam", {"optimizer": "adagrad"}, "optimizer is 'adagrad', expected one of 'sgd', 'lars', 'adam'"),
        ("cached", {"epochs": "1"}, "unknown setting 'epochs'"),
        ("cached", {"holdout": "1"}, "holdout is 1.0, expected a share between 0 and 1"),
        ("cached", {"holdout": "0.0"}, "holdout is 0.0, expected a share between 0 and 1"),
        ("cached", {"strengths": "[]"}, r"strengths are \[\], expected one or more"),
        ("cached", {"strengths": "[1, 0]"}, r"strengths are \[1\.0, 0\.0\]"),
        ("cached", {"max_iter": "0"}, "max_iter is 0"),
    ],
)
def test_bad_settings_say_what_is_wrong(name, changes, text):
    with pytest.raises(UsageError, match=text):
        get_protocol(name, changes)


def test_no_strength_is_infinite():
    with pytest.raises(UsageError, match=r"strengths are \[inf\], expected one or more numbers above 0"):
        Cached(strengths=(math.inf,))


@pytest.mark.parametrize("order", [*permutations([("holdout", "0.1"), ("lrs", "[0.1, 0.2]"), ("epochs", "3")])])
def test_the_order_of_settings_makes_no_difference(order):
    changed = get_protocol("simsiam", dict(order))
    assert (changed.holdout, changed.lrs, changed.epochs) == (0.1, (0.1, 0.2), 3)

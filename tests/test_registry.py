"""Registries: no silent replacement, and unknown names help."""

import pytest

from ssl_hub.errors import UsageError
from ssl_hub.registry import Registry, suggest


def test_taken_name_is_refused():
    registry: Registry[int] = Registry("colour")
    registry.add("red", 1)
    with pytest.raises(UsageError, match="colour 'red' of tests is registered already, by tests; choose another"):
        registry.register("red")(2)
    assert registry["red"] == 1


def test_the_same_may_be_defined_again_and_the_later_counts():
    registry: Registry[type] = Registry("colour")
    for _ in range(2):  # as a module that is imported again after it has failed

        @registry.register("red")
        class Red:
            pass

    assert registry["red"] is Red
    cell = compile("registry.add('green', object())", "cell", "exec")
    for _ in range(2):
        exec(cell, {"registry": registry, "__name__": "__main__"})
    with pytest.raises(UsageError, match="colour 'green' of tests is registered already, by __main__"):
        registry.add("green", int)


def test_unknown_name_suggests_the_nearest_or_lists_all():
    registry: Registry[int] = Registry("colour")
    registry.add("green", 1)
    registry.add("blue", 2)
    with pytest.raises(UsageError, match="unknown colour 'gren'; did you mean 'green'"):
        registry["gren"]
    with pytest.raises(UsageError, match="unknown colour 'xyz'; known: blue, green"):
        registry["xyz"]


def test_prefix_is_a_better_hint_than_spelling():
    known = ["directpred-r18-stl10-100ep", "directpred-r50-300ep", "directpred-r50-60ep"]
    assert suggest("directpred-r50", known) == "; did you mean 'directpred-r50-300ep'?"


def test_patterns_and_order():
    registry: Registry[int] = Registry("x")
    for name in ("b-1", "a-1", "b-2"):
        registry.add(name, 0)
    assert registry.names() == ["b-1", "a-1", "b-2"]
    assert registry.names("b-*") == ["b-1", "b-2"]

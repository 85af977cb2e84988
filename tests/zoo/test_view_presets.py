"""Every recipe's views have a name, and the named ones are the papers'."""

from dataclasses import replace

from ssl_hub.zoo import RECIPES
from ssl_hub.zoo.view_presets import BYOL, BYOL_32, SIMSIAM, SMALL_32, SMALL_96, VIEW_PRESETS, view_preset


def test_byol_is_asymmetric_and_the_others_are_not() -> None:
    assert (BYOL.view1.blur, BYOL.view1.solarise) == (1.0, 0.0)
    assert (BYOL.view2.blur, BYOL.view2.solarise) == (0.1, 0.2)
    assert all(views.view1 == views.view2 for name, views in VIEW_PRESETS.items() if not name.startswith("byol"))
    assert BYOL_32.view2 == replace(BYOL_32.view1, solarise=0.2) and BYOL_32.view1.blur == 0
    assert {name for name, views in VIEW_PRESETS.items() if views.view1.operations == "byol"} == {"byol"}


def test_small_images_are_not_blurred_at_32_pixels() -> None:
    assert SMALL_32.view1.blur == 0 and SMALL_32.size == 32
    assert SMALL_96.view1.blur == 1.0 and SMALL_96.size == 96
    assert SIMSIAM.view1.crop_scale == (0.2, 1.0) and SIMSIAM.view1.solarise == 0


def test_recipes_use_named_views() -> None:
    names = {name: view_preset(RECIPES[name]) for name in RECIPES.names("*")}
    assert names["byol-r50-300ep"] == names["directpred-r50-60ep"] == "byol"
    assert names["simsiam-r50-100ep"] == "simsiam"
    assert names["directpred-r18-cifar10-100ep"] == "small-32"
    assert names["byol-r18-stl10-100ep"] == "small-96"
    assert names["simsiam-r18-cifar10-800ep"] == "simsiam-32"
    assert {name for name, preset in names.items() if preset is None} == {n for n in names if n.endswith("-digits")}

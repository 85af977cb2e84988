"""The augmentations that recipes share, by name. Each is one ``Views``; ``dataclasses.replace`` derives another."""

from __future__ import annotations

from dataclasses import replace

from ssl_hub.config import Recipe, View, Views

# Grill et al. 2020, appendix B, and its released code: view 1 always blurred, view 2 rarely and sometimes solarised.
_BYOL_VIEW = View(operations="byol")
BYOL = Views(size=224, view1=replace(_BYOL_VIEW, blur=1.0), view2=replace(_BYOL_VIEW, blur=0.1, solarise=0.2))

# Chen and He 2021, section 3 and its MoCo v2 augmentation: both views alike.
_SIMSIAM_VIEW = View(crop_scale=(0.2, 1.0), saturation=0.4, blur=0.5)
SIMSIAM = Views(size=224, view1=_SIMSIAM_VIEW, view2=_SIMSIAM_VIEW)

# The authors' code for CIFAR-10 and STL-10 (Tian et al. 2021): both views alike; no blur at 32 pixels.
_SMALL_32_VIEW = View(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, blur=0.0)
SMALL_32 = Views(
    size=32, view1=_SMALL_32_VIEW, view2=_SMALL_32_VIEW, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)
)
_SMALL_96_VIEW = View(brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, blur=1.0)  # 13 taps for sigma 2
SMALL_96 = Views(size=96, view1=_SMALL_96_VIEW, view2=_SMALL_96_VIEW)

# BYOL's at 32 pixels without blur, as in the code of Halvagal et al. 2023: view 2 sometimes solarised.
_BYOL_32_VIEW = View(blur=0.0)
BYOL_32 = replace(SMALL_32, view1=_BYOL_32_VIEW, view2=replace(_BYOL_32_VIEW, solarise=0.2))

# SimSiam's smaller range of crops on CIFAR-10's colours (Chen and He 2021, appendix D).
_SIMSIAM_32_VIEW = replace(_SMALL_32_VIEW, crop_scale=(0.2, 1.0))
SIMSIAM_32 = replace(SMALL_32, view1=_SIMSIAM_32_VIEW, view2=_SIMSIAM_32_VIEW)

VIEW_PRESETS = {
    "byol": BYOL,
    "simsiam": SIMSIAM,
    "byol-32": BYOL_32,
    "small-32": SMALL_32,
    "small-96": SMALL_96,
    "simsiam-32": SIMSIAM_32,
}


def view_preset(recipe: Recipe) -> str | None:
    """The name of a recipe's views, or None where they are its own."""
    return next((name for name, views in VIEW_PRESETS.items() if views == recipe.views), None)

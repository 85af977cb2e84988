"""config.json of a release: what timm reads, and the root key ``ssl_hub``. What cannot be true in it is refused."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ssl_hub.atomic import replace_file
from ssl_hub.errors import UsageError
from ssl_hub.model.files import CONFIG
from ssl_hub.model.reading import read_json

FORMAT = 1  # of the "ssl_hub" key; newer files with unknown keys still load, with a warning
# What of timm's pretrained_cfg is a release's own: how images come in. The architecture has the rest; and where else to
# find weights is none of a release's business.
IMAGE_KEYS = ("input_size", "crop_pct", "interpolation", "mean", "std")
OF_OTHER_WEIGHTS: Mapping[str, Any] = {  # which timm would tell of the architecture's, and nothing of in a release
    "url": "", "hf_hub_id": None, "tag": "", "crop_mode": "center", "test_input_size": None, "test_crop_pct": None,
}  # fmt: skip


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    replace_file(folder / CONFIG, (json.dumps(config, indent=2, allow_nan=False) + "\n").encode())


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a release, or :class:`UsageError` where it is none."""
    path = folder / CONFIG
    if not path.exists():
        raise UsageError(f"{folder} has no {CONFIG}, so it is no release; is it still training, or the path wrong?")
    config = read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("architecture"), str):
        raise UsageError(f"{path} names no 'architecture', as timm's config.json does")
    about = config.setdefault("ssl_hub", {})
    if not isinstance(about, dict) or not isinstance(about.get("format", FORMAT), int):
        raise UsageError(f"{path}: 'ssl_hub' is {about!r}, expected an object with a whole number 'format'")
    if about.get("format", FORMAT) > FORMAT:
        warnings.warn(
            f"{path} has format {about['format']}, newer than {FORMAT}; update ssl_hub if it misbehaves", stacklevel=2
        )
    _check_images(path, config.setdefault("pretrained_cfg", {}))
    return config


def _check_images(path: Path, image: Any) -> None:
    """Raise UsageError unless what config.json says of the images can be true."""
    if not isinstance(image, dict):
        raise UsageError(f"{path}: 'pretrained_cfg' is {image!r}, expected an object")
    size = image.get("input_size", [3, 224, 224])
    if not (isinstance(size, list) and len(size) == 3 and all(isinstance(n, int) and 0 < n <= 4096 for n in size)):
        raise UsageError(f"{path}: 'input_size' is {size!r}, expected [3, height, width] of at most 4096 pixels")
    for key in ("mean", "std"):
        value = image.get(key, [1.0, 1.0, 1.0])
        numbers = isinstance(value, list) and all(isinstance(v, (int, float)) and math.isfinite(v) for v in value)
        if not numbers or len(value) != 3 or (key == "std" and min(value) <= 0):
            raise UsageError(f"{path}: {key!r} is {value!r}, expected three finite numbers{', > 0' * (key == 'std')}")
    share, how = image.get("crop_pct", 1.0), image.get("interpolation", "bilinear")
    if not (isinstance(share, (int, float)) and 0 < share <= 1 and isinstance(how, str)):
        raise UsageError(f"{path}: 'crop_pct' is {share!r} and 'interpolation' {how!r}, expected 0 to 1 and a name")


def model_args(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """What config.json hands to the architecture: nothing, the size of image that it is built for, or the padding of a
    small stem. Else a UsageError: an architecture may take what is none of a release's business."""
    from ssl_hub.model.small_resnets import is_small  # here, as whoever reads JSON alone needs no timm

    given = config.get("model_args") or {}
    small = is_small(config["architecture"])
    allowed = [{"stem_padding": pixels} for pixels in range(4)] if small else [{"img_size": _size(config)}]
    if given and given not in allowed:
        raise UsageError(
            f"{path}: 'model_args' is {given!r}, expected none, 'img_size' as in 'input_size', or 'stem_padding' of a"
            " small-image ResNet"
        )
    return dict(given)


def _size(config: Mapping[str, Any]) -> int | None:
    size = config["pretrained_cfg"].get("input_size")
    return int(size[-1]) if size else None


def image_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """How images come in, in timm's types, and the licence; in the place of what timm knows of its own weights."""
    kept = {key: value for key, value in config["pretrained_cfg"].items() if key in IMAGE_KEYS}
    kept = {key: tuple(value) if isinstance(value, list) else value for key, value in kept.items()}
    return {**OF_OTHER_WEIGHTS, "license": config["ssl_hub"].get("licence"), **kept}

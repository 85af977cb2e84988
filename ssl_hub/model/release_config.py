"""config.json of a release: what timm reads, and the root key ``ssl_hub``. What cannot be true in it is refused."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ssl_hub.atomic import replace_file
from ssl_hub.errors import UsageError
from ssl_hub.model.files import CONFIG, MODEL
from ssl_hub.model.reading import read_json

FORMAT = 1  # of the "ssl_hub" key; newer files with unknown keys still load, with a warning
# What of timm's pretrained_cfg is a release's own: how images come in. The architecture has the rest; and where else to
# find weights is none of a release's business.
IMAGE_KEYS = ("input_size", "crop_pct", "interpolation", "mean", "std")
OF_OTHER_WEIGHTS: Mapping[str, Any] = {  # which timm would tell of the architecture's, and nothing of in a release
    "url": "", "hf_hub_id": None, "tag": "", "crop_mode": "center", "test_input_size": None, "test_crop_pct": None,
}  # fmt: skip


POOLS = ("avg", "max", "avgmax", "catavgmax", "token", "map")  # timm's ways from a map to features [B, C]


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    replace_file(folder / CONFIG, (json.dumps(config, indent=2, allow_nan=False) + "\n").encode())


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a release, or :class:`UsageError` where it is none."""
    path = folder / CONFIG
    if not path.exists():
        raise UsageError(f"{folder} has no {CONFIG}, so it is no release; is it still training, or the path wrong?")
    config = read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("architecture"), str):
        file = (
            f"; another project's checkpoint is read by its file: {folder / MODEL}"
            if (folder / MODEL).is_file()
            else ""
        )
        raise UsageError(f"{path} names no 'architecture', as timm's config.json does{file}")
    about = config.setdefault("ssl_hub", {})
    if not isinstance(about, dict) or not isinstance(about.get("format", FORMAT), int):
        raise UsageError(f"{path}: 'ssl_hub' is {about!r}, expected an object with a whole number 'format'")
    if about.get("format", FORMAT) > FORMAT:
        warnings.warn(
            f"{path} has format {about['format']}, newer than {FORMAT}; update ssl_hub if it misbehaves", stacklevel=2
        )
    image = config.setdefault("pretrained_cfg", {})
    _check_images(path, image)
    if image.get("fixed_input_size") and (side := _side(config.get("model_args"))) is not None:
        image["input_size"] = [3, side, side]  # as timm reads it: what the model was built for
    given = config.get("model_args")
    if isinstance(given, dict) and given.get("num_classes") == (config.get("num_classes") or 0):
        del given["num_classes"]  # said twice, and another classifier would change one of them
    return config


def _side(given: Any) -> int | None:
    """``img_size`` of a model's arguments, which timm writes as one number or as height and width."""
    size = given.get("img_size") if isinstance(given, dict) else None
    if isinstance(size, list) and len(size) == 2 and size[0] == size[1]:
        size = size[0]
    return size if type(size) is int and 0 < size <= 4096 else None


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
    """What config.json hands to the architecture: nothing, the size of image that it is built for, how it pools, or the
    padding of a small stem. Else a UsageError: an architecture may take what is none of a release's business.

    timm writes the number of classes and of colours, too, which are those of the model and of images.
    """
    from ssl_hub.model.small_resnets import is_small  # here, as whoever reads JSON alone needs no timm

    given = config.get("model_args") or {}
    small = is_small(config["architecture"])
    known: dict[str, Callable[[Any], bool]] = {
        "in_chans": lambda value: value == 3,
        "global_pool": lambda value: value in POOLS,
        "img_size": lambda value: not small and _side(given) is not None,
        "stem_padding": lambda value: small and type(value) is int and value in range(4),
    }
    if not isinstance(given, dict) or not all(key in known and known[key](value) for key, value in given.items()):
        raise UsageError(
            f"{path}: 'model_args' is {given!r}, expected none, 'img_size' of square images, 'num_classes' as beside"
            f" it, 'in_chans' 3, 'global_pool' of {', '.join(POOLS)}, or 'stem_padding' of a small-image ResNet"
        )
    kept = {key: value for key, value in given.items() if key in ("global_pool", "stem_padding")}
    return {**kept, **({"img_size": _side(given)} if "img_size" in given else {})}


def image_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """How images come in, in timm's types, and the licence; in the place of what timm knows of its own weights."""
    kept = {key: value for key, value in config["pretrained_cfg"].items() if key in IMAGE_KEYS}
    kept = {key: tuple(value) if isinstance(value, list) else value for key, value in kept.items()}
    return {**OF_OTHER_WEIGHTS, "license": config["ssl_hub"].get("licence"), **kept}

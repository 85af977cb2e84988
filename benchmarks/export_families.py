"""One model of every family of timm written in every format and checked; the table in docs/export.md.

    python benchmarks/export_families.py                 # all of them, an hour of one core; writes export_families.json
    python benchmarks/export_families.py beit twins      # some of them again
    python docs/hooks.py                                 # the table

The models are those of families.py: the smallest of a family, with fewer blocks where it is large and can be built so,
untrained, with statistics of batch normalisation as a training might leave them. What has over 30 million parameters
even so is left out.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import timm
import torch
from families import Trial, families, model_of, nothing_drawn, parameters, shortened, size_of
from torch import nn

from ssl_hub.errors import UsageError
from ssl_hub.exporting.export import export

TABLE = Path(__file__).with_suffix(".json")
MOST = 30e6
TRIED = (("onnx", "pooled"), ("onnx", "stages"), ("torch-export", "pooled"), ("torchscript", "pooled"))


def table() -> dict[str, Any]:
    return json.loads(TABLE.read_text()) if TABLE.exists() else {"families": {}}


def made(name: str, size: int) -> nn.Module:
    """The model, whose configuration says the size that it was made for."""
    model = Trial(name, size, Path()).lived_in()
    model.pretrained_cfg |= {"input_size": (3, size, size), "crop_pct": 1.0, "interpolation": "bilinear"}  # type: ignore[operator]
    return model


def row(family: str) -> dict[str, Any]:
    """What the table says of a family: the greatest relative difference of each file, or why there is none."""
    name = model_of(family)
    short = shortened(name)
    found: dict[str, Any] = {"name": name, "parameters": parameters(short)}
    if found["parameters"] > MOST:
        return {**found, "left_out": f"{found['parameters'] / 1e6:.0f} million parameters"}
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder, nothing_drawn():
        try:
            found["size"] = size_of(short)
            model = made(short, found["size"])
        except UsageError as error:
            return {**found, "left_out": str(error)}
        for kind, features in TRIED:
            try:
                done = export(model, folder, format=kind, features=features)  # type: ignore[arg-type]
                found[f"{kind}, {features}"] = done.about["parity"]["relative"]
                if features == "stages":
                    found["strides"] = [output["stride"] for output in done.about["outputs"]]
            except Exception as error:
                found[f"{kind}, {features}"] = f"{type(error).__name__}: {str(error).strip()[:300]}".splitlines()[0]
    return {**found, "seconds": round(time.process_time() - start, 1)}


def main(chosen: list[str]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = {name: was for name, was in table()["families"].items() if name in families()}
    versions = {"timm": timm.__version__, "torch": torch.__version__.partition("+")[0]}
    versions |= {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__}
    for family in chosen or families():
        rows[family] = row(family)
        print(family, json.dumps(rows[family]), flush=True)
        TABLE.write_text(json.dumps({**versions, "families": dict(sorted(rows.items()))}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

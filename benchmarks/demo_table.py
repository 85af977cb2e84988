"""The demo run beside its two baselines: the same backbone before training, and raw pixels.

python benchmarks/demo_table.py RUN
"""

import json
import sys
from pathlib import Path

import ssl_hub


def top1(results: list[ssl_hub.Result]) -> float:
    return next(r.value for r in results if r.metric == "top1")


def main(run: str) -> None:
    recipe = json.loads((Path(run) / "recipe.json").read_text())["recipe"]
    size, seed = recipe["views"]["size"], recipe["train"]["seed"]
    rows = [
        (recipe["name"], run, {}),
        ("same backbone, untrained", f"init:{recipe['name']}", {"seed": seed}),
        ("raw pixels", "pixels", {"image_size": size}),
    ]
    print(f"{'features':30}{'linear probe':>14}{'20-NN':>10}    on {recipe['data']['name']}, test split, top-1")
    for label, model, options in rows:
        probe = top1(ssl_hub.linear_probe(model, recipe["data"]["name"], **options))
        nearest = top1(ssl_hub.knn(model, recipe["data"]["name"], **options))
        print(f"{label:30}{probe:12.1f} %{nearest:8.1f} %")


if __name__ == "__main__":
    main(sys.argv[1])

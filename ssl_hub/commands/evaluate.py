"""``ssl-hub knn`` and ``probe``."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ssl_hub.commands import Subparsers

if TYPE_CHECKING:
    from ssl_hub.model.results import Result


def register(commands: Subparsers) -> None:
    nearest = commands.add_parser("knn", help="k-nearest-neighbour accuracy of a frozen backbone")
    _evaluation_arguments(nearest)
    nearest.add_argument("--k", type=int, default=20, help="neighbours (default 20)")
    nearest.add_argument("--temperature", type=float, default=0.07, help="of the vote (default 0.07)")
    nearest.set_defaults(run=_knn)

    probe = commands.add_parser("probe", help="linear-probe accuracy of a frozen backbone")
    _evaluation_arguments(probe)
    probe.set_defaults(run=_probe)


def _evaluation_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "model", help="run folder, release name, timm:NAME (random), timm:NAME@TAG, init:RECIPE, or pixels"
    )
    parser.add_argument(
        "--data", help="registered name, path, or Hub dataset id (default: what the release was trained on)"
    )
    parser.add_argument("--train-split", help="default: the recipe's, else train")
    parser.add_argument("--test-split", help="default: the recipe's, else test")
    parser.add_argument("--image-column", help="of a table, where its type does not tell")
    parser.add_argument("--label-column", help="of a table, where its type does not tell")
    parser.add_argument("--image-size", type=int, help="pixels, for timm: models and pixels")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--workers", type=int, default=4, help="decoding processes for large images")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="machine-readable output")


def _options(arguments: Namespace) -> dict[str, Any]:
    names = ("train_split", "test_split", "image_column", "label_column", "image_size", "batch_size", "workers", "seed")
    return {name: getattr(arguments, name) for name in names}


def _knn(arguments: Namespace) -> None:
    from ssl_hub.evaluate.model import knn

    options = _options(arguments)
    _print(
        knn(arguments.model, arguments.data, k=arguments.k, temperature=arguments.temperature, **options),
        arguments.json,
    )


def _probe(arguments: Namespace) -> None:
    from ssl_hub.evaluate.model import linear_probe

    _print(linear_probe(arguments.model, arguments.data, **_options(arguments)), arguments.json)


def _print(results: list[Result], as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(result) for result in results], indent=2))
        return
    for result in results:
        print(f"{result.protocol:8}{result.metric}  {result.value:6.2f} %  {result.dataset} ({result.split})")

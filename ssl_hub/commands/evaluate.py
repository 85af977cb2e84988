"""``ssl-hub knn``, ``probe`` and ``finetune``, which are also the launchers of those names."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from ssl_hub.codec import parse_assignments
from ssl_hub.commands import RESUME, Subparsers, add_columns, add_data, add_extraction, add_json, add_resume, options
from ssl_hub.processes import speaks

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
    probe.add_argument("--protocol", default="cached", help="cached (default), byol, simsiam or authors-small")
    probe.add_argument("--replace-head", action="store_true", help="store the head even where a better founded one is")
    probe.add_argument("overrides", nargs="*", metavar="key=value", help="settings of the protocol, such as epochs=10")
    probe.set_defaults(run=_probe)

    tune = commands.add_parser("finetune", help="train a backbone with a new classifier on labelled images")
    _evaluation_arguments(tune, folds=False)
    tune.add_argument("overrides", nargs="*", metavar="key=value", help="settings, such as lr=0.02 layer_decay=0.65")
    tune.add_argument("--train-list", metavar="FILE", help="text file that names the training images: 1 %% or 10 %%")
    tune.add_argument("--fraction", type=float, default=1.0, help="of each class's training images (default 1)")
    tune.add_argument("--output", help="folder (default: in the store, named after the model and the data)")
    add_resume(tune)
    tune.add_argument("--overwrite", action="store_true", help="replace the run in that folder")
    tune.set_defaults(run=_finetune)


def _evaluation_arguments(parser: ArgumentParser, *, folds: bool = True) -> None:
    parser.add_argument(
        "model", help="run folder, release name, timm:NAME (random), timm:NAME@TAG, init:RECIPE, or pixels"
    )
    add_data(parser, "what the release was trained on")
    parser.add_argument("--train-split", help="default: the recipe's, else train")
    parser.add_argument("--test-split", help="default: the recipe's, else test")
    parser.add_argument(
        "--holdout",
        type=float,
        metavar="SHARE",
        help="judge a stratified part of the train split, such as 0.2, instead",
    )
    if folds:
        parser.add_argument("--folds", type=int, help="judge all of the train split by cross-validation, such as 5")
    parser.add_argument(
        "--allow-overlap", action="store_true", help="judge images that are fitted to; the number then counts nowhere"
    )
    add_columns(parser)
    parser.add_argument(
        "--range", help="black and white of more than 8 bits: auto, bits, or LOW,HIGH (default: the release's)"
    )
    parser.add_argument("--image-size", type=int, help="pixels, for timm: models and pixels")
    add_extraction(parser)
    parser.add_argument("--seed", type=int, default=0)
    add_json(parser)


def _extraction(arguments: Namespace) -> dict[str, Any]:
    from ssl_hub.evaluate.extraction import Extraction

    return options(arguments, *(field.name for field in fields(Extraction) if hasattr(arguments, field.name)))


def _knn(arguments: Namespace) -> None:
    from ssl_hub.evaluate.model import knn

    _measure(knn, arguments, **options(arguments, "k", "temperature"))


def _probe(arguments: Namespace) -> None:
    from ssl_hub.evaluate.model import linear_probe

    overrides = parse_assignments(arguments.overrides)
    _measure(linear_probe, arguments, overrides=overrides, **options(arguments, "protocol", "replace_head"))


def _measure(measure: Callable[..., list[Result]], arguments: Namespace, **settings: Any) -> None:
    from ssl_hub.train.launch import joined

    settings |= {"show_progress": True, **_extraction(arguments)}
    with joined() as accelerator:
        results = measure(arguments.model, arguments.data, accelerator=accelerator, **settings)
        if accelerator.is_main_process:
            used, asked = results[0].settings.get("k", 0), settings.get("k", 0)
            if used < asked:
                print(f"note: k is {used}, all images of the train split, not {asked}", file=sys.stderr)
            _print(results, arguments.json)


def _finetune(arguments: Namespace) -> None:
    from ssl_hub.train.finetune import finetune

    if arguments.train_list is not None:
        arguments.train_split = f"{arguments.train_split or 'train'}@{arguments.train_list}"
    folder, results = finetune(
        arguments.model, arguments.data, output=arguments.output, fraction=arguments.fraction,
        resume=RESUME[arguments.resume], overwrite=arguments.overwrite,
        overrides=parse_assignments(arguments.overrides), show_progress=True, **_extraction(arguments),
    )  # fmt: skip
    if speaks():
        _print(results, arguments.json)
        print(f"released in {folder}, recorded in {folder / 'results.json'}", file=sys.stderr)


def _print(results: list[Result], as_json: bool) -> None:
    from ssl_hub.evaluate.measurement import listed

    print(json.dumps([asdict(result) for result in results], indent=2) if as_json else "\n".join(listed(results)))

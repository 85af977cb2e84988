"""The ``ssl-hub`` command: arguments in, one library call, text out. No logic of its own."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ssl_hub.codec import parse_assignments, to_dict, to_json
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.zoo import DEMO, get_recipe, list_recipes

if TYPE_CHECKING:
    from ssl_hub.evaluate.results import Result

BAD_INPUT = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``ssl-hub``; returns the exit code: 0, or 2 with one line on stderr for bad input."""
    parser = argparse.ArgumentParser(
        prog="ssl-hub", description="Non-contrastive self-supervised learning: recipes, models, evaluation."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    listing = commands.add_parser("recipes", help="list the recipes")
    listing.add_argument("pattern", nargs="?", default="*", help="shell-style pattern, for example 'directpred-*'")
    listing.add_argument("--json", action="store_true", help="machine-readable output")
    listing.set_defaults(run=_recipes)

    show = commands.add_parser("show", help="show everything about a recipe")
    show.add_argument("recipe")
    show.add_argument("overrides", nargs="*", metavar="key=value")
    show.set_defaults(run=_show)

    training = commands.add_parser("train", help="train on one process; for more: accelerate launch recipes/train.py")
    _training_arguments(training)
    training.set_defaults(run=_train)

    nearest = commands.add_parser("knn", help="k-nearest-neighbour accuracy of a frozen backbone")
    _evaluation_arguments(nearest)
    nearest.add_argument("--k", type=int, default=20, help="neighbours (default 20)")
    nearest.add_argument("--temperature", type=float, default=0.07, help="of the vote (default 0.07)")
    nearest.set_defaults(run=_knn)

    probe = commands.add_parser("probe", help="linear-probe accuracy of a frozen backbone")
    _evaluation_arguments(probe)
    probe.set_defaults(run=_probe)

    spectrum = commands.add_parser("spectrum", help="draw a run's eigenvalues and alignment over training")
    spectrum.add_argument("run_folder", metavar="RUN", help="run folder, or its name in the store")
    spectrum.add_argument("--out", required=True, help="a .png, .pdf or .svg file")
    spectrum.set_defaults(run=_spectrum)

    _theory_arguments(commands.add_parser("theory", help="the paper's theorems, figures and what they say of a recipe"))

    arguments = _parse(parser, argv)
    _wait_asleep()
    return guarded(lambda: arguments.run(arguments))


def train_main(argv: Sequence[str] | None = None) -> int:
    """The launcher ``recipes/train.py``: train one recipe on every process it is started on."""
    parser = argparse.ArgumentParser(
        prog="recipes/train.py", description="Train a recipe; run it with `accelerate launch` or `torchrun`."
    )
    _training_arguments(parser)
    arguments = _parse(parser, argv)
    _wait_asleep()
    return guarded(lambda: _train(arguments))


def _parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse, with ``key=value`` and the recipe anywhere among the options; argparse alone does not find them."""
    arguments, rest = parser.parse_known_args(argv)
    if rest and (any(word.startswith("-") for word in rest) or not hasattr(arguments, "overrides")):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest and getattr(arguments, "recipe", "") is None and "=" not in rest[0]:
        arguments.recipe = rest.pop(0)
    if rest:
        arguments.overrides += rest
    return arguments


def _wait_asleep() -> None:
    """Have OpenMP threads that wait for others sleep rather than spin, unless the user chose; before torch is imported.

    On cores that other processes use too, spinning threads wait for each other's time slices: steps of the demo took
    three to seven times longer.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def guarded(run: Callable[[], None]) -> int:
    """Run; bad input becomes one line on the main process's stderr and exit code 2. Bugs keep their traceback."""
    try:
        run()
    except UsageError as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - held until exit, so that the final flush has a place to go
    return 0


def _training_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", nargs="?", help=f"a recipe's name (default: the demo, {DEMO})")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="settings, for example train.epochs=5 predictor.eps=0.01"
    )
    parser.add_argument("--data", help="registered name, path, or Hub dataset id (default: the recipe's)")
    parser.add_argument("--output", help="run folder (default: the recipe's name in the store, $SSL_HUB_HOME)")
    parser.add_argument("--resume", action="store_true", help="continue the run in that folder")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in that folder")
    parser.add_argument("--checkpoint-minutes", type=float, metavar="M", help="also save every M minutes")
    parser.add_argument("--on-collapse", choices=["warn", "stop"], help="when features collapse (default: warn)")
    parser.add_argument("--tracker", choices=["tensorboard", "wandb", "trackio"], help="log there too")
    parser.add_argument(
        "--allow-change", action="append", default=[], metavar="KEY", help="a setting that may differ on resume"
    )


def _train(arguments: argparse.Namespace) -> None:
    from ssl_hub.train.loop import pretrain

    name, assignments = arguments.recipe, arguments.overrides
    if name is not None and "=" in name:
        name, assignments = None, [name, *assignments]
    if name is None:
        name = DEMO
        if os.environ.get("RANK", "0") == "0":
            print(f"no recipe given: training the built-in demo, {DEMO}", file=sys.stderr)
    flags = {f"runtime.{name}": getattr(arguments, name) for name in ("checkpoint_minutes", "on_collapse", "tracker")}
    pretrain(
        name,
        data=arguments.data,
        output=arguments.output,
        resume=arguments.resume,
        overwrite=arguments.overwrite,
        allow_change=arguments.allow_change,
        overrides={**{k: v for k, v in flags.items() if v is not None}, **parse_assignments(assignments)},
    )


def _recipes(arguments: argparse.Namespace) -> None:
    names = list_recipes(arguments.pattern)
    if not names:
        raise UsageError(f"no recipe matches {arguments.pattern!r}; `ssl-hub recipes` lists all")
    if arguments.json:
        print(json.dumps([to_dict(get_recipe(name)) for name in names], indent=2))
        return
    width = max(map(len, names))
    for name in names:
        print(f"{name:{width}}  {get_recipe(name).summary}")


def _show(arguments: argparse.Namespace) -> None:
    print(to_json(get_recipe(arguments.recipe, **parse_assignments(arguments.overrides))))
    recipe: Recipe = get_recipe(arguments.recipe)
    print(f"\ntrain it with: {recipe.command}", file=sys.stderr)


def _evaluation_arguments(parser: argparse.ArgumentParser) -> None:
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


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("train_split", "test_split", "image_column", "label_column", "image_size", "batch_size", "workers", "seed")
    return {name: getattr(arguments, name) for name in names}


def _knn(arguments: argparse.Namespace) -> None:
    from ssl_hub.evaluate.model import knn

    options = _options(arguments)
    _print(
        knn(arguments.model, arguments.data, k=arguments.k, temperature=arguments.temperature, **options),
        arguments.json,
    )


def _probe(arguments: argparse.Namespace) -> None:
    from ssl_hub.evaluate.model import linear_probe

    _print(linear_probe(arguments.model, arguments.data, **_options(arguments)), arguments.json)


def _print(results: list[Result], as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(result) for result in results], indent=2))
        return
    for result in results:
        print(f"{result.protocol:8}{result.metric}  {result.value:6.2f} %  {result.dataset} ({result.split})")


def _spectrum(arguments: argparse.Namespace) -> None:
    from ssl_hub.hub.store import run_folder
    from ssl_hub.theory.run_spectrum import draw_run
    from ssl_hub.train.run import read_metrics

    folder = run_folder(arguments.run_folder)
    print(draw_run(read_metrics(folder), arguments.out, name=folder.name))


def _theory_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    figure = actions.add_parser("figure", help="draw a figure of the paper")
    figure.add_argument("name", help="for example statespace; an unknown name lists all")
    figure.add_argument("overrides", nargs="*", metavar="key=value", help="parameters of the figure")
    figure.add_argument("--out", required=True, help="a .png, .pdf or .svg file")
    figure.set_defaults(run=_theory_figure)
    check = actions.add_parser("check", help="every theorem and observation with its measured defect")
    check.add_argument("--seed", type=int, default=0)
    check.set_defaults(run=_theory_check)
    predict = actions.add_parser("predict", help="what the theory says of a recipe's hyperparameters")
    predict.add_argument("recipe")
    predict.add_argument("overrides", nargs="*", metavar="key=value")
    predict.set_defaults(run=_theory_predict)


def _theory_figure(arguments: argparse.Namespace) -> None:
    from ssl_hub.theory import draw

    overrides = {key: json.loads(value) for key, value in parse_assignments(arguments.overrides).items()}
    print(draw(arguments.name, arguments.out, **overrides))


def _theory_check(arguments: argparse.Namespace) -> None:
    from ssl_hub.theory import check

    check(seed=arguments.seed)


def _theory_predict(arguments: argparse.Namespace) -> None:
    from ssl_hub.theory import predict

    recipe = get_recipe(arguments.recipe, **parse_assignments(arguments.overrides))
    prediction = predict(**sgd_units(recipe))
    print("\n".join([*prediction.sentences, "", "Assumptions:", *(f"- {line}" for line in prediction.assumptions)]))


def sgd_units(recipe: Recipe) -> dict[str, Any]:
    """What ``ssl_hub.theory.predict`` asks for, from a recipe trained by SGD."""
    from ssl_hub.theory import flow_units

    optim, target = recipe.optim, dict(recipe.target.options)
    if optim.name != "sgd":
        raise UsageError(f"{recipe.name} is trained by {optim.name}; the theory speaks of SGD: add optim.name=sgd")
    reference = optim.reference_batch or recipe.train.batch_size
    lr = optim.lr * recipe.train.batch_size / reference
    ema = recipe.target.kind == "ema"
    momentum = float(target.get("momentum") or 0.996) if ema else 0.0
    units = flow_units(lr=lr, momentum=optim.momentum, weight_decay=optim.weight_decay, ema_m=momentum)
    decay = optim.weight_decay if optim.predictor_weight_decay is None else optim.predictor_weight_decay
    return {
        "alpha_p": optim.predictor_lr_ratio,
        "eta": units.eta,
        "eta_p": optim.predictor_lr_ratio * decay,
        "beta": units.beta if ema else None,
        "lr": lr,
        "momentum": optim.momentum,
    }


if __name__ == "__main__":
    raise SystemExit(main())

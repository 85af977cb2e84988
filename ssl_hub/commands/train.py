"""``ssl-hub train``, which is also the launcher ``recipes/train.py``, and ``ssl-hub resume``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from ssl_hub.atomic import expanded
from ssl_hub.codec import parse_assignments
from ssl_hub.commands import RESUME, Subparsers, add_data, add_resume, options
from ssl_hub.processes import speaks
from ssl_hub.zoo import DEMO

FLAGS = ("checkpoint_minutes", "on_collapse", "monitor_data", "tracker")  # settings of ``runtime``


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("train", help="train on one process; for more: accelerate launch -m ssl_hub train")
    parser.add_argument(
        "recipe", nargs="?", help=f"a recipe's name, or a recipe.json (default: the run's with --resume, else {DEMO})"
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="settings, for example train.epochs=5 predictor.eps=0.01"
    )
    add_data(parser, "the recipe's")
    parser.add_argument("--output", help="run folder (default: in the store, named after recipe and changes)")
    add_resume(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace the run in that folder")
    parser.add_argument("--checkpoint-minutes", type=float, metavar="M", help="also save every M minutes")
    parser.add_argument("--on-collapse", choices=["warn", "stop"], help="when features collapse (default: warn)")
    parser.add_argument("--monitor-data", metavar="LABELLED", help="labelled images to measure on while it trains")
    parser.add_argument("--tracker", choices=["tensorboard", "wandb", "trackio"], help="log there too")
    _add_allow_change(parser)
    parser.set_defaults(run=_train)

    again = commands.add_parser("resume", help="go on with a run of train or finetune, by its folder alone")
    again.add_argument("run_folder", metavar="RUN", help="run folder, or its name in the store")
    again.add_argument("overrides", nargs="*", metavar="key=value", help="settings that are to differ from here on")
    _add_allow_change(again)
    again.set_defaults(run=_resume)


def _add_allow_change(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--allow-change", action="append", default=[], metavar="KEY", help="a setting that may differ on resume"
    )


def _resume(arguments: Namespace) -> None:
    from ssl_hub.train.resume import resume

    overrides = parse_assignments(arguments.overrides)
    resume(arguments.run_folder, allow_change=arguments.allow_change, overrides=overrides, show_progress=True)


def _train(arguments: Namespace) -> None:
    from ssl_hub.train.loop import pretrain

    words = [word for word in (arguments.recipe, *arguments.overrides) if word is not None]
    name = next((word for word in words if "=" not in word), None)  # it may stand behind settings
    if name is not None:
        words.remove(name)
    if name is None and not _goes_on(arguments):
        name = DEMO
        if speaks():
            print(f"no recipe given: training the built-in demo, {DEMO}", file=sys.stderr)
    flags = {f"runtime.{name}": value for name, value in options(arguments, *FLAGS).items() if value is not None}
    pretrain(
        name,
        resume=RESUME[arguments.resume],
        overrides={**flags, **parse_assignments(words)},
        **options(arguments, "data", "output", "overwrite", "allow_change"),
    )


def _goes_on(arguments: Namespace) -> bool:
    """Whether the run folder says which recipe is meant."""
    from ssl_hub.model.files import RECIPE

    if arguments.output is None or arguments.resume == "no":
        return False
    return arguments.resume == "yes" or (expanded(arguments.output) / RECIPE).is_file()

"""``ssl-hub sweep``."""

from __future__ import annotations

import sys
from argparse import Namespace

from ssl_hub.codec import parse_assignments
from ssl_hub.commands import Subparsers, add_data, options


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("sweep", help="train a recipe over a grid of settings and seeds")
    parser.add_argument(
        "recipe", nargs="?", help="a recipe's name, or a recipe.json (default: what was begun in --out)"
    )
    values = "one value for all runs, or several: predictor.rho=0.1,0.3,0.5"
    parser.add_argument("overrides", nargs="*", metavar="key=value", help=values)
    parser.add_argument("--seeds", type=int, help="how many (default 1, or as many as were begun)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, one thread each (default 1)")
    add_data(parser, "the recipe's")
    parser.add_argument("--out", help="folder of the sweep (default: in the store)")
    parser.add_argument("--slurm", metavar="FILE", help="write a job array for sbatch there, and train nothing")
    parser.add_argument("--format", default="md", choices=["md", "latex", "json"])
    parser.set_defaults(run=_sweep)


def _sweep(arguments: Namespace) -> None:
    from ssl_hub.atomic import expanded, replace_file
    from ssl_hub.train.grid import refuse_failed
    from ssl_hub.train.sweep import begin_array, planned, split_axes, sweep

    if arguments.recipe is not None and "=" in arguments.recipe:  # what was begun in --out is meant
        arguments.overrides.insert(0, arguments.recipe)
        arguments.recipe = None
    axes, settings = split_axes(parse_assignments(arguments.overrides))
    given = {"settings": settings, **options(arguments, "data", "out", "seeds")}
    if arguments.slurm is not None:
        plan, folder = planned(arguments.recipe, axes, **given)
        replace_file(expanded(arguments.slurm), begin_array(plan, folder).encode())
        runs = len(plan.tasks(folder))
        print(f"{runs} runs: sbatch {arguments.slurm}, then ssl-hub report {folder}", file=sys.stderr)
        return
    found = sweep(arguments.recipe, axes, jobs=arguments.jobs, **given)
    grid = found.grid()
    print({"md": grid.markdown, "latex": grid.latex, "json": found.comparison.json}[arguments.format]())
    if (picture := grid.svg()) is not None:
        path = found.folder / "sweep.svg"
        replace_file(path, picture)
        print(f"as a picture in {path}", file=sys.stderr)
    print(f"as a page: ssl-hub report {found.folder}", file=sys.stderr)
    refuse_failed(found.left)

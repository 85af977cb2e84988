"""``ssl-hub spectrum`` and ``theory``."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from ssl_hub.codec import parse_assignments
from ssl_hub.commands import Subparsers
from ssl_hub.errors import UsageError
from ssl_hub.zoo import get_recipe


def register(commands: Subparsers) -> None:
    spectrum = commands.add_parser("spectrum", help="draw a run's eigenvalues and alignment over training")
    spectrum.add_argument("run_folder", metavar="RUN", help="run folder, or its name in the store")
    spectrum.add_argument("--out", required=True, help="a .png, .pdf or .svg file")
    predicted = "lay over them what the theory predicts from the run's initial network and data, which must be there"
    spectrum.add_argument("--predicted", action="store_true", help=predicted)
    spectrum.set_defaults(run=_spectrum)
    _theory_arguments(commands.add_parser("theory", help="the paper's theorems, figures and what they say of a recipe"))


def _spectrum(arguments: Namespace) -> None:
    from ssl_hub.hub.store import run_folder
    from ssl_hub.model.metrics import read_metrics
    from ssl_hub.theory.run_spectrum import draw_run

    folder = run_folder(arguments.run_folder)
    records, prediction = read_metrics(folder), None
    if arguments.predicted:
        from ssl_hub.model.release import read_recipe
        from ssl_hub.train.forecast import forecast

        if (recipe := read_recipe(folder)) is None:
            raise UsageError(f"{folder.name} says no recipe that its start could be made from; leave out --predicted")
        steps = [record["step"] for record in records if record.get("spectrum")]
        prediction = forecast(recipe, steps=steps).prediction
    print(draw_run(records, arguments.out, name=folder.name, prediction=prediction))


def _theory_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    figure = actions.add_parser("figure", help="draw a figure of the paper")
    figure.add_argument("name", help="for example statespace; an unknown name lists all")
    figure.add_argument("overrides", nargs="*", metavar="key=value", help="parameters of the figure")
    figure.add_argument("--out", help="a .png, .pdf or .svg file")
    figure.set_defaults(run=_theory_figure)
    check = actions.add_parser("check", help="every theorem and observation with its measured defect")
    check.add_argument("--seed", type=int, default=0)
    check.set_defaults(run=_theory_check)
    predict = actions.add_parser("predict", help="what the theory says of a recipe")
    predict.add_argument("recipe")
    predict.add_argument("overrides", nargs="*", metavar="key=value")
    measured = "forecast a run of the recipe from its initial network and data, which must be there"
    predict.add_argument("--measured", action="store_true", help=measured)
    predict.set_defaults(run=_theory_predict)


def _theory_figure(arguments: Namespace) -> None:
    from ssl_hub.theory import draw, figure_names

    if arguments.out is None and arguments.name in figure_names():
        raise UsageError(f"give --out FILE, for example --out {arguments.name}.png")
    overrides = {key: json.loads(value) for key, value in parse_assignments(arguments.overrides).items()}
    print(draw(arguments.name, arguments.out or "", **overrides))  # an unknown name is told of first


def _theory_check(arguments: Namespace) -> None:
    from ssl_hub.theory import check

    check(seed=arguments.seed)


def _theory_predict(arguments: Namespace) -> None:
    from ssl_hub.theory import law
    from ssl_hub.theory.prediction import assumptions
    from ssl_hub.train.forecast import forecast, not_described, setting_of

    recipe = get_recipe(arguments.recipe, **parse_assignments(arguments.overrides))
    setting, why = setting_of(recipe), not_described(recipe)
    if why is not None and arguments.measured:
        raise UsageError(f"{recipe.name} is not described by the theory: {why}")
    lines = law(setting, described=why is None)
    if why is not None:
        print("\n".join([f"Not described: {why}. What holds for any predictor:", *lines]))
        return
    if arguments.measured:
        found = forecast(recipe)
        aligned = ", were its predictor aligned from the start" if setting.predictor.kind == "trained" else ""
        lines.append(f"Forecast{aligned}: a run of {found.total_steps} steps ends {found.ends}.")
    print("\n".join([*lines, "", "Assumptions:", *(f"- {line}" for line in assumptions(setting))]))

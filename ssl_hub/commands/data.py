"""``ssl-hub data``."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable
from typing import Any

from ssl_hub.commands import Subparsers, add_columns, add_json, options
from ssl_hub.errors import UsageError


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("data", help="say what a dataset is, what is wrong with it, and how to train on it")
    parser.add_argument("data", help="registered name, path, or Hub dataset id")
    parser.add_argument("--thorough", action="store_true", help="read every image, and compare all contents")
    parser.add_argument("--range", default="auto", help="black and white of more than 8 bits: auto, bits, or LOW,HIGH")
    add_columns(parser)
    parser.add_argument("--sheet", metavar="FILE", help="also draw images and their views, for example to sheet.png")
    add_json(parser, "print everything as JSON")
    parser.set_defaults(run=_data)


def _data(arguments: Namespace) -> None:
    from ssl_hub.data.sheet import save_sheet, sheet_of, sheet_path
    from ssl_hub.data.survey import survey
    from ssl_hub.zoo import get_recipe
    from ssl_hub.zoo.advice import findings
    from ssl_hub.zoo.data_page import page
    from ssl_hub.zoo.data_plan import plan

    out = None if arguments.sheet is None else sheet_path(arguments.sheet)
    columns = options(arguments, "image_column", "label_column")
    found = survey(
        arguments.data, **columns, value_range=arguments.range, thorough=arguments.thorough, progress=_progress
    )
    advised = plan(found)
    advised = None if advised is None else advised.with_columns(columns)
    if arguments.json:
        advice = {"findings": [finding._asdict() for finding in findings(found)]}
        print(json.dumps({**found, **advice, "plan": None if advised is None else advised.as_json()}, indent=2))
    else:
        print(page(found, arguments.data, advised))
    if out is not None and advised is not None:
        recipe = get_recipe(advised.recipe, **advised.settings, **{"data.name": arguments.data})
        save_sheet(sheet_of(recipe, images=8, draws=2), out)
    if "error" in found["splits"].get("train", {}):
        raise UsageError("split 'train' cannot be opened, so this data cannot be trained on as it is")


def _progress(items: Iterable[Any], total: int, name: str) -> Iterable[Any]:
    """A bar on a terminal's error stream, where there is enough to wait for."""
    from tqdm import tqdm

    wrapped: Iterable[Any] = tqdm(items, total=total, desc=name, leave=False, delay=1, disable=None)
    return wrapped

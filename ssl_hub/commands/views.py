"""``ssl-hub views``."""

from __future__ import annotations

from argparse import Namespace

from ssl_hub.codec import parse_assignments
from ssl_hub.commands import Subparsers, add_data
from ssl_hub.zoo import get_recipe


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("views", help="draw a contact sheet of images and their views")
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings, for example views.view1.blur=0")
    add_data(parser, "the recipe's")
    parser.add_argument("--out", required=True, help="the picture's file, for example sheet.png")
    parser.add_argument("--images", type=int, default=8, help="number of images (default 8)")
    parser.add_argument("--draws", type=int, default=3, help="draws of each view (default 3)")
    parser.set_defaults(run=_views)


def _views(arguments: Namespace) -> None:
    from ssl_hub.data.sheet import save_sheet, sheet_of, sheet_path

    out = sheet_path(arguments.out)
    settings = parse_assignments(arguments.overrides)
    if arguments.data is not None:
        settings["data.name"] = arguments.data
    recipe = get_recipe(arguments.recipe, **settings)
    print(save_sheet(sheet_of(recipe, images=arguments.images, draws=arguments.draws), out))

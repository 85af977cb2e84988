"""``ssl-hub duplicates``."""

from __future__ import annotations

import json
from argparse import Namespace

from ssl_hub.commands import Subparsers, add_columns, add_extraction, add_json, options


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("duplicates", help="images that are there twice or nearly, in and across splits")
    parser.add_argument("data", help="registered name, path, or Hub dataset id")
    parser.add_argument("--model", required=True, help="run folder, release name, timm:NAME@TAG, or pixels")
    parser.add_argument("--split", default="train", help="default: train")
    parser.add_argument("--against", metavar="SPLIT", help="compare with this split too, for example test")
    parser.add_argument("--threshold", type=float, help="cosine of near-duplicates (default: chosen on the data)")
    parser.add_argument("--index", metavar="FOLDER", help="keep the features there, and take them from there next time")
    parser.add_argument("--sheet", metavar="FILE", help="draw pairs from the least similar on, to a .png or .jpg file")
    parser.add_argument("--list-keep", metavar="FILE", help="write the file list of --split without duplicates")
    parser.add_argument("--list-drop", metavar="FILE", help="write the file list of what is left out")
    add_columns(parser)
    add_extraction(parser)
    add_json(parser, "print every pair as JSON")
    parser.set_defaults(run=_duplicates)


def _duplicates(arguments: Namespace) -> None:
    from ssl_hub.atomic import expanded, refuse_missing_folder
    from ssl_hub.data.file_lists import write_list
    from ssl_hub.data.sheet import save_sheet, sheet_path
    from ssl_hub.evaluate.near_duplicates import near_duplicates

    sheet = None if arguments.sheet is None else sheet_path(arguments.sheet)
    lists = {name: expanded(path) for name in ("keep", "drop") if (path := getattr(arguments, f"list_{name}"))}
    for path in lists.values():
        refuse_missing_folder(path)
    names = ("split", "against", "threshold", "index", "image_column", "label_column", "batch_size", "workers")
    found = near_duplicates(arguments.model, arguments.data, show_progress=True, **options(arguments, *names))
    print(json.dumps(found.as_json(), indent=2) if arguments.json else found.text())
    for name, path in lists.items():
        write_list(found.source, found.kept() if name == "keep" else found.dropped(), path)
    if sheet is not None:
        save_sheet(found.sheet(), sheet)

"""``ssl-hub transfer``."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ssl_hub.codec import parse_assignments
from ssl_hub.commands import Subparsers, add_extraction, add_json, options


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("transfer", help="frozen backbones on a list of data sets, as one table")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="run folder, release name, timm:NAME@TAG, or pixels")
    parser.add_argument("--data", nargs="+", required=True, help="registered names, paths, or Hub dataset ids")
    parser.add_argument("--out", required=True, help="folder for features and results; the same again goes on there")
    parser.add_argument("--k", type=int, default=20, help="neighbours (default 20)")
    parser.add_argument("--set", nargs="+", default=[], metavar="key=value", help="settings of the protocol `cached`")
    parser.add_argument("--train-split", help="of each data set (default: train)")
    parser.add_argument("--test-split", help="of each data set (default: test)")
    parser.add_argument("--holdout", type=float, metavar="SHARE", help="judge a stratified part of each train split")
    parser.add_argument("--image-size", type=int, help="pixels, for timm: models and pixels")
    add_extraction(parser)
    parser.add_argument("--seed", type=int, default=0)
    add_json(parser)
    parser.set_defaults(run=_transfer)


def _transfer(arguments: Namespace) -> None:
    from ssl_hub.tables.transfer import transfer

    names = ("train_split", "test_split", "holdout", "image_size", "batch_size", "workers", "seed", "k")
    found = transfer(
        arguments.models, arguments.data, out=Path(arguments.out), overrides=parse_assignments(arguments.set),
        show_progress=True, **options(arguments, *names),
    )  # fmt: skip
    print(found.json() if arguments.json else found.text(), end="")

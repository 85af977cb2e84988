"""``ssl-hub report``, ``watch``, ``embed`` and ``similar``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ssl_hub.commands import Subparsers, add_columns, add_data, add_extraction, options

OF_DATA = ("split", "image_column", "label_column", "batch_size", "workers")


def register(commands: Subparsers) -> None:
    report = commands.add_parser("report", help="one HTML page about a run, several side by side, or a sweep")
    report.add_argument("runs", nargs="+", metavar="RUN", help="run folder, name in the store, RUN@STEP, or a sweep")
    report.add_argument("--out", default="report.html", help="the file to write (default: report.html)")
    report.add_argument("--data", help="what to show pictures of (default: each run's own data)")
    report.set_defaults(run=_report)

    watch = commands.add_parser("watch", help="follow a run that is training")
    watch.add_argument("run_folder", metavar="RUN", help="run folder, or its name in the store; it need not exist yet")
    watch.set_defaults(run=_watch)

    embed = commands.add_parser("embed", help="write the features of a split to a parquet file")
    _data_arguments(embed, split="test")
    embed.add_argument("--out", required=True, help="a .parquet file: id, label, class, features")
    embed.set_defaults(run=_embed)

    similar = commands.add_parser("similar", help="the images of a split that are nearest to one")
    _data_arguments(similar, split="train", image=True)
    similar.add_argument("--k", type=int, default=8, help="neighbours (default 8)")
    similar.add_argument("--index", metavar="FOLDER", help="keep the features there, for the next time")
    similar.add_argument("--out", help="also draw them: a .png or .jpg file")
    similar.set_defaults(run=_similar)


def _data_arguments(parser: ArgumentParser, *, split: str, image: bool = False) -> None:
    parser.add_argument("model", help="run folder, release name, timm:NAME@TAG, init:RECIPE, or pixels")
    if image:
        parser.add_argument("image", help="an image file")
    add_data(parser, "what the release was trained on")
    parser.add_argument("--split", default=split, help=f"default: {split}")
    add_columns(parser)
    add_extraction(parser)


def _report(arguments: Namespace) -> None:
    from ssl_hub.report.page import write_report

    print(write_report(arguments.runs, arguments.out, data=arguments.data))


def _watch(arguments: Namespace) -> None:
    from ssl_hub.report.watch import watch

    watch(arguments.run_folder)


def _embed(arguments: Namespace) -> None:
    from ssl_hub.evaluate.embedding import embed

    print(embed(arguments.model, arguments.data, **options(arguments, "out", *OF_DATA)))


def _similar(arguments: Namespace) -> None:
    from ssl_hub.evaluate.embedding import similar

    given = options(arguments, "k", "out", "index", *OF_DATA)
    found = similar(arguments.model, arguments.image, arguments.data, **given)
    width = max(len(neighbour.label or "") for neighbour in found)
    for place, neighbour in enumerate(found, start=1):
        same = "  (the same content)" if neighbour.same else ""
        print(f"{place:3}  {neighbour.similarity:.4f}  {neighbour.label or '':{width}}  {neighbour.id}{same}")

"""``ssl-hub import``: another project's checkpoint as a release."""

from __future__ import annotations

from argparse import Namespace

from ssl_hub.codec import parse_assignments
from ssl_hub.commands import Subparsers, options

# Named here too, since the registry of them imports torch; a test compares.
SOURCES = (
    "simsiam, lightly, solo-learn, mmpretrain, luckmatters, pytorch-byol, byol-pytorch, vissl, efficientnet-lite,"
    " transformers, torchvision-vit, plain"
)


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("import", help="turn another project's checkpoint into a release; runs no code in it")
    parser.add_argument("source", help=f"the project: {SOURCES}; a plug-in's; or auto, to go by the names in the file")
    parser.add_argument("file", help="what torch.save wrote, or safetensors")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings of the recipe")
    parser.add_argument("--recipe", required=True, help="what to file it under")
    parser.add_argument("--which", choices=["online", "target"], default="online", help="branch (default: online)")
    parser.add_argument("--name", help="of the release (default: the recipe's)")
    parser.add_argument("--to", metavar="STORE", help="folder of releases (default: the store)")
    parser.add_argument("--licence", help="of the weights, where it is not the project's, for example CC-BY-4.0")
    parser.add_argument(
        "--padding", choices=["0", "1", "2", "3", "same"], help="of the stem, where no file says it; same: TensorFlow's"
    )
    parser.set_defaults(run=_import)


def _import(arguments: Namespace) -> None:
    from ssl_hub.hub.importers.importing import import_checkpoint

    padding = int(arguments.padding) if (arguments.padding or "same") != "same" else arguments.padding
    overrides = parse_assignments(arguments.overrides)
    given = options(arguments, "source", "which", "name", "to", "licence")
    print(import_checkpoint(arguments.file, arguments.recipe, padding=padding, overrides=overrides, **given))

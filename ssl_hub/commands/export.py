"""``ssl-hub export``."""

from __future__ import annotations

from argparse import Namespace

from ssl_hub.commands import Subparsers, add_json, options


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("export", help="write a model as ONNX, torch.export or TorchScript, and check it")
    parser.add_argument("model", help="run folder, RUN@STEP, release, timm:NAME, timm:NAME@TAG, or hf-hub:OWNER/NAME")
    parser.add_argument("--to", required=True, help="a .onnx, .pt2 or .pt file, or a folder")
    parser.add_argument("--format", default="onnx", help="onnx (default), torch-export or torchscript")
    parser.add_argument("--head", metavar="DATA", help="give the logits of the classifier for this data")
    parser.add_argument("--features", default="pooled", help="pooled (default), map, stages or tokens")
    parser.add_argument("--input", default="uint8", help="uint8 (default; normalisation inside) or float (beside)")
    parser.add_argument("--image-size", type=int, help="pixels of a side (default: the model's)")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="of an output's greatest value (default 1e-4)")
    add_json(parser, "print what is written beside the file")
    parser.set_defaults(run=_export)


def _export(arguments: Namespace) -> None:
    import json

    from ssl_hub.exporting.export import export

    names = ("format", "head", "features", "input", "image_size", "tolerance")
    done = export(arguments.model, arguments.to, **options(arguments, *names))
    print(json.dumps(done.about, indent=2) if arguments.json else done.text())

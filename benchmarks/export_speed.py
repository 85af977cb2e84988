"""Images a second of an exported model in onnxruntime beside the model in torch, in turn, on one thread each.

python benchmarks/export_speed.py
python benchmarks/export_speed.py resnet50 --image-size 224 --batch-size 8
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import onnxruntime
import torch

from ssl_hub.exporting.export import export
from ssl_hub.exporting.parity import pictures
from ssl_hub.exporting.program import make_program

NAMES = ["resnet18", "convnext_atto", "vit_tiny_patch16_224", "efficientnet_lite0"]


def seconds(run: Callable[[], Any]) -> float:
    """Processor time of one run."""
    start = time.process_time()
    with torch.inference_mode():
        run()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    images, size = pictures(arguments.batch_size, arguments.image_size), arguments.image_size
    print("| model | torch (images/s) | onnxruntime (images/s) | ratio | greatest difference, as a share |")
    print("|---|---|---|---|---|")
    for name in arguments.names:
        with tempfile.TemporaryDirectory() as folder:
            done = export(f"timm:{name}", folder, image_size=size)
            made = make_program(f"timm:{name}", head=None, features="pooled", kind="uint8", image_size=size)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            session = onnxruntime.InferenceSession(str(Path(folder) / "model.onnx"), options)
        torchs, onnxs = [], []
        for _ in range(arguments.rounds + 1):
            torchs.append(seconds(partial(made.program, images)))
            onnxs.append(seconds(partial(session.run, None, {"images": images.numpy()})))
        ratio = statistics.median(a / b for a, b in zip(torchs[1:], onnxs[1:], strict=True))
        rates = [f"{len(images) / statistics.median(took[1:]):.1f}" for took in (torchs, onnxs)]
        print(f"| `{name}` | {' | '.join(rates)} | {ratio:.2f} | {done.about['parity']['relative']:.0e} |", flush=True)


if __name__ == "__main__":
    main()

"""What training on many GPUs sends, needs and takes: counted here, projected to where nobody has measured.

python benchmarks/scaling.py                                    # tables on the terminal
python benchmarks/scaling.py --page docs/scaling.md             # and into the page
python benchmarks/scaling.py --assume gpu_tflops=60 --assume gpu_memory_gb=40

Counting starts real gloo processes with ResNet-50s and takes some minutes; ``benchmarks/scaling_counts.json`` keeps
what was counted, and ``--count`` counts again, ``--count host`` the memory of a host alone, in some seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scaling_data import HostTables
from scaling_host import host
from scaling_model import Assumptions
from scaling_published import published
from scaling_tables import PICTURE, RECIPES, STREAMED, Projection

import ssl_hub
from ssl_hub.data.loaders import epoch_order
from ssl_hub.data.sources import open_source
from ssl_hub.data.views import TwoViews

HERE = Path(__file__).parent
COUNTS = HERE / "scaling_counts.json"
GRAIN = 20.0  # grey levels of noise in the pictures, which gives them the size of ImageNet's


def count() -> dict[str, Any]:
    """What two, four and one processes count; see ``scaling_count.py``. Then what the data path does on one core."""
    found: dict[str, Any] = {}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        for n in (1, 2, 4):
            file = Path(folder) / f"{n}.json"
            launcher = [sys.executable]
            launcher += ["-m", "torch.distributed.run", "--nproc_per_node", str(n)] if n > 1 else []
            script = str(HERE / "scaling_count.py")
            subprocess.run([*launcher, script, str(file), *RECIPES], env=environment, check=True)
            found[str(n)] = json.loads(file.read_text())
        found["core_seconds"], found["picture_bytes"] = data_path(Path(folder))
    found["order"] = order_cost(10**6)
    found["host"] = host()
    return found


def data_path(folder: Path, images: int = 40) -> tuple[float, float]:
    """Seconds of one core for an image, decoded and both views cropped as a worker process does; and its bytes."""
    data = folder / "photos"
    data.mkdir()
    draws = np.random.default_rng(0)
    for index in range(images):
        coarse = draws.integers(0, 256, (PICTURE[1] // 25, PICTURE[0] // 25, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize(PICTURE, Image.Resampling.BICUBIC), np.float64)
        grainy = (smooth + draws.normal(0, GRAIN, smooth.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(grainy).save(data / f"{index}.jpg", quality=90)
    source = open_source(str(data), "train")
    views = TwoViews(ssl_hub.get_recipe(STREAMED).views, seed=0)
    began = time.process_time()
    for index in range(images):
        views.crop(source.image(index), index, 0)
    seconds = (time.process_time() - began) / images
    return seconds, sum(file.stat().st_size for file in data.iterdir()) / images


def order_cost(images: int) -> dict[str, float]:
    """Of the order of one epoch, which every process computes: seconds, and bytes for each image at its peak."""
    began = time.process_time()
    epoch_order(images, seed=0, epoch=0)
    seconds = time.process_time() - began
    tracemalloc.start()
    epoch_order(images, seed=0, epoch=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"images": images, "seconds": seconds, "bytes": peak / images}


def blocks(projection: Projection) -> dict[str, Callable[[], str]]:
    """The page's tables by the name of their place."""
    tables, of_host = ("collectives", "memory", "data", "assumptions", "hours", "parts"), HostTables(projection)
    tables += ("groups", "stream", "order", "breaks")
    return {
        **{name: getattr(projection, name) for name in tables},
        **{name: getattr(of_host, name) for name in ("names", "shared", "reading", "bandwidth")},
        "published": lambda: published(projection),
    }


def fill(page: Path, made: dict[str, Callable[[], str]]) -> None:
    """Put each table between its marks, ``<!-- name -->`` and ``<!-- end -->``."""
    text = page.read_text(encoding="utf-8")
    for name, make in made.items():
        text, found = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)", lambda m, make=make: f"{m[1]}{make()}\n{m[2]}", text, flags=re.S
        )
        if found != 1:
            raise SystemExit(f"{page} has {found} places for the table {name!r}, expected one")
    page.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", nargs="?", const="all", choices=("all", "host"), help="count again")
    parser.add_argument("--assume", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--page", type=Path, help="a page to put the tables into")
    arguments = parser.parse_args()
    known = {field.name for field in fields(Assumptions)}
    changed = dict(text.split("=", 1) for text in arguments.assume)
    if changed.keys() - known:
        parser.error(f"unknown assumption {min(changed.keys() - known)!r}; known: {', '.join(sorted(known))}")
    if arguments.count or not COUNTS.exists():
        found = {**json.loads(COUNTS.read_text()), "host": host()} if arguments.count == "host" else count()
        COUNTS.write_text(json.dumps(found, indent=1) + "\n")
    assume = Assumptions(**{name: float(value) for name, value in changed.items()})  # type: ignore[arg-type]
    projection = Projection(json.loads(COUNTS.read_text()), assume)
    made = blocks(projection)
    for name, make in made.items():
        print(f"\n{name}\n\n{make()}")
    if arguments.page:
        fill(arguments.page, made)


if __name__ == "__main__":
    main()

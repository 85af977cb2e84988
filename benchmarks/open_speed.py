"""Seconds and memory to open a folder of class folders and a parquet table, beside datasets and torchvision.

python benchmarks/open_speed.py                                       # 20,000 files and rows
python benchmarks/open_speed.py --files 1300000 --rows 1000000        # ImageNet's number; 1,000 classes

The files are links to a few small JPEG images under names as long as ImageNet's, so that they take no room. Each way
runs in a process of its own, on a folder that is in the file system's cache. Seconds and memory are those of opening
alone, after what it imports has been loaded; memory is what the process has more of at the end, and at its peak.
``datasets`` opens into an empty cache, and again from it; what is mapped from there counts as far as it was touched.
The inventory is that of a source which is open already.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from PIL import Image

LINKS = 30_000  # of one file; ext4 allows 65,000
MEGABYTE = 2**20


def make_folder(root: Path, files: int, classes: int) -> Path:
    source = root / "one.jpg"
    Image.effect_noise((32, 32), 60).convert("RGB").save(source)
    for label in range(classes):
        folder = root / "folder" / "train" / f"n{label:08}"
        folder.mkdir(parents=True)
        for number in range(label * files // classes, (label + 1) * files // classes):
            if number % LINKS == 0:
                source = Path(shutil.copy(root / "one.jpg", root / f"{number}.jpg"))
            os.link(source, folder / f"n{label:08}_{number}.JPEG")
    return root / "folder"


def make_table(root: Path, rows: int, classes: int) -> Path:
    from datasets import ClassLabel, Features
    from datasets import Image as ImageFeature
    from pyarrow import parquet, table

    folder, image = root / "table", (root / "one.jpg").read_bytes()
    folder.mkdir()
    features = Features({"image": ImageFeature(), "label": ClassLabel(num_classes=classes)})
    shards = -(-rows // 100_000)
    for shard in range(shards):
        count = min(100_000, rows - 100_000 * shard)
        cells = [{"bytes": image, "path": f"{shard}_{n}.jpg"} for n in range(count)]
        written = table({"image": cells, "label": [n % classes for n in range(count)]}, schema=features.arrow_schema)
        parquet.write_table(written, folder / f"train-{shard:05}-of-{shards:05}.parquet", row_group_size=1000)
    return folder


def ours(data: str, cache: str) -> tuple[Callable[[], Any], ...]:
    import datasets

    from ssl_hub.data.sources import open_source

    datasets.config.HF_DATASETS_CACHE = Path(cache)
    open_source("digits", "train").image(0)
    return (lambda: open_source(data, "train"),) * (2 if Path(data).name == "table" else 1)


def inventory(data: str, cache: str) -> tuple[Callable[[], Any], ...]:
    from ssl_hub.data.inventory import inventory as taken

    source = ours(data, cache)[0]()
    return (lambda: taken(source),)


def torchvision(data: str, cache: str) -> tuple[Callable[[], Any], ...]:
    from torchvision.datasets import ImageFolder

    return (lambda: ImageFolder(f"{data}/train"),)


def hugging_face(data: str, cache: str) -> tuple[Callable[[], Any], ...]:
    from datasets import disable_progress_bars, load_dataset

    disable_progress_bars()
    kind = "parquet" if Path(data).name == "table" else "imagefolder"
    return (lambda: load_dataset(kind, data_dir=data, split="train", cache_dir=cache),) * 2


def measure(way: Callable[..., tuple[Callable[[], Any], ...]], data: str, cache: str, queue: Any) -> None:
    process = psutil.Process()
    readings = []
    for open_it in way(data, cache):
        highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        before, started, busy = process.memory_info().rss, time.monotonic(), time.process_time()
        opened = open_it()
        seconds, busy = time.monotonic() - started, time.process_time() - busy
        after = process.memory_info().rss
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak = peak * 1024 if peak > highest else after  # else the process had more before
        readings.append((seconds, busy, (after - before) / MEGABYTE, (peak - before) / MEGABYTE))
        del opened
    queue.put(readings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--skip", nargs="*", default=[], help="what is left out, as folder:hugging_face")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as root:
        folder = make_folder(Path(root), arguments.files, arguments.classes)
        table = make_table(Path(root), arguments.rows, arguments.classes)
        print("| data | way | seconds | of a CPU | MB kept | MB at the peak |\n|---|---|---:|---:|---:|---:|")
        ways = [ours, inventory, torchvision, hugging_face]
        sum(len(files) for _, _, files in os.walk(folder))
        table_ways = [ours, inventory, hugging_face]
        for data, count, tried in ((folder, arguments.files, ways), (table, arguments.rows, table_ways)):
            for way in (way for way in tried if f"{data.name}:{way.__name__}" not in arguments.skip):
                queue = context.Queue()
                process = context.Process(target=measure, args=(way, str(data), f"{root}/{way.__name__}", queue))
                process.start()
                for again, (seconds, busy, kept, peak) in enumerate(queue.get()):
                    name = f"{way.__name__}{', again' * again}"
                    print(
                        f"| {count:,} {data.name} | {name} | {seconds:.2f} | {busy:.2f} | {kept:.0f} | {peak:.0f} |",
                        flush=True,
                    )
                process.join()


if __name__ == "__main__":
    main()

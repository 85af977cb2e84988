"""Tables of docs/scaling.md about the host: names of files, shared memory, and what reading a stream takes."""

from __future__ import annotations

from scaling_tables import GPUS, IMAGENET, STREAM, STREAMED, Projection, short, table

import ssl_hub
from ssl_hub.data.streams import read_too_often

IMAGENET_21K = 14_197_122
VIEW_BYTES = 2 * 3 * 224**2  # both crops of an image, 8 bits, as workers hand them over
SHARDS = (1_000, 1_024, 10_000, 100_000)
READERS = {"a disk": 3402, "HTTP": 998, "S3": 935}  # images/s of one process, benchmarks/README.md
DOCKER_MB = 64  # of /dev/shm where --shm-size does not say


class HostTables:
    def __init__(self, projection: Projection) -> None:
        self.projection, self.assume, self.counts = projection, projection.assume, projection.counts

    def names(self) -> str:
        """What each process holds, and each of its workers beside that."""
        found, rows = self.counts["host"]["names"], []
        for label, images in (("ImageNet", IMAGENET), ("ImageNet-21k", IMAGENET_21K), ("a billion images", STREAM)):
            for kind, called in (("ours", "one buffer"), ("strings", "a list of strings")):
                cost = found[kind]
                each = ("held", "peak", "copied_when_forked", "sent")
                rows.append([label, called, *(short(images * cost[what]) for what in each)])
        return table("data | names as | a process | while it lists | a forked worker | a spawned worker", rows)

    def shared(self) -> str:
        """/dev/shm of a node while workers are as far ahead as they go."""
        workers, rows = self.assume.workers, []
        for name in (STREAMED, "byol-r50-60ep"):
            batch = ssl_hub.get_recipe(name).train.batch_size
            for n in GPUS[:2]:
                images = batch / n
                one = images * VIEW_BYTES
                process = (2 * workers + 1) * one
                node = process * min(n, self.assume.gpus_per_node)
                rows.append([name, n, f"{images:g}", short(one), short(process), f"{node / 1e9:.2f}"])
        return table("recipe | GPUs | images a GPU | a batch | a process | a node (GB)", rows)

    def reading(self) -> str:
        """Bytes that are read over those of the data, by the number of shards."""
        rows = []
        for shards in SHARDS:
            cells = [f"{shards / n:.1f} / {read_too_often(shards, n):.2f}" if shards >= n else "-" for n in GPUS]
            rows.append([f"{shards:,}", *cells])
        return table(f"shards | {' | '.join(f'{n} GPUs' for n in GPUS)}", rows)

    def bandwidth(self) -> str:
        """Images/s that a GPU takes at the assumed rates, and what one process reads."""
        rows, rates = [], (self.assume.gpu_tflops_low, self.assume.gpu_tflops, self.assume.gpu_tflops_high)
        for n in GPUS:
            steps = [self.projection.surely(STREAMED, n, gpu_tflops=rate) for rate in rates]
            wanted = [step.images / step.on_gpu for step in steps]
            slowest = [name for name, images in READERS.items() if images < wanted[-1]]
            cells = [f"{images:.0f} / {images * self.assume.image_kb / 1e3:.0f}" for images in wanted]
            rows.append([n, *cells, ", ".join(slowest) or "none"])
        return table(f"GPUs | {' | '.join(f'{rate:g} TFLOP/s' for rate in rates)} | too slow at the last", rows)

"""The tables of docs/scaling.md, from what was counted and what is assumed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scaling_model import Assumptions, Step, predict, synchronised_bn

import ssl_hub
from ssl_hub.zoo import imagenet

RECIPES = [recipe.name for recipe in imagenet.recipes()]
STREAMED, STREAM = "directpred-r50-300ep", 10**9
IMAGENET, GPUS = 1_281_167, (8, 64, 512)
PICTURE = (500, 375)  # pixels, ImageNet's usual size
PURPOSES = ("gradients", "statistics", "buffers", "flags")
HOURS = (
    "recipe | GFLOP an image | GPUs | images a GPU | memory (GB) | step (ms) | hours | images/s wanted | GB/s wanted"
    " | cores a GPU | bound by"
)


def table(head: str, rows: Iterable[Iterable[object]]) -> str:
    lines = [f"| {head} |", "|" + "---|" * (head.count("|") + 1)]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def short(size: float) -> str:
    """Bytes in a unit that suits them."""
    unit, scale = next((u, s) for u, s in (("MB", 1e6), ("kB", 1e3), ("B", 1.0)) if size >= s or s == 1.0)
    value = size / scale
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"


class Projection:
    """The page's tables, from what was counted and what is assumed."""

    def __init__(self, counts: dict[str, Any], assume: Assumptions) -> None:
        self.counts, self.assume = counts, assume
        self.counted = {name: {**counts["4"][name], "work": counts["1"][name]["work"]} for name in RECIPES}

    def step(self, name: str, n: int, batch: int | None = None) -> Step | None:
        """None where the recipe's batch has no image for some process."""
        batch = batch or ssl_hub.get_recipe(name).train.batch_size
        if batch < n:
            return None
        core_seconds = self.counts["core_seconds"]
        return predict(self.counted[name], batch=batch, n=n, core_seconds=core_seconds, assume=self.assume)

    def collectives(self) -> str:
        rows = []
        for name in RECIPES:
            for n in ("2", "4"):
                found = self.counts[n][name]["collectives"]
                cells = [f"{found[p]['calls']} / {short(found[p]['bytes'])}" if p in found else "0" for p in PURPOSES]
                bn = synchronised_bn(self.counts[n][name])
                calls, size = bn["gathers"] + bn["reduces"], bn["gather_bytes"] + bn["reduce_bytes"]
                rows.append([name, n, *cells, f"{calls} / {short(size)}"])
        return table("recipe | processes | gradients | F | BN buffers | flags | SyncBN (derived)", rows)

    def memory(self) -> str:
        rows = []
        for name, counted in self.counted.items():
            parts = counted["memory"]
            each = [short(parts[p]) for p in ("online", "target", "gradients", "gradients", "optimiser", "statistics")]
            rows.append([name, *each, short(self.assume.activation_share * counted["work"]["activations"])])
        return table(
            "recipe | online | target | gradients | DDP's buckets (derived) | momentum | F | activations of an image",
            rows,
        )

    def hours(self) -> str:
        rows = []
        for name in RECIPES:
            recipe = ssl_hub.get_recipe(name)
            steps = recipe.train.epochs * (IMAGENET // recipe.train.batch_size)
            gflops = f"{self.counted[name]['work']['flops'] / 1e9:.1f}"
            for n in GPUS:
                step = self.step(name, n)
                if step is None:
                    rows.append([name, gflops, n, f"{recipe.train.batch_size / n:g}", *["-"] * 6, "too few images"])
                else:
                    rows.append([name, gflops, n, *self.cells(step, recipe.train.batch_size, steps)])
        return table(HOURS, rows)

    def stream(self) -> str:
        recipe = ssl_hub.get_recipe(STREAMED)
        rows = []
        for batch in (recipe.train.batch_size, 4 * recipe.train.batch_size):
            for n in GPUS:
                step = self.step(STREAMED, n, batch)
                assert step is not None
                rows.append([batch, n, *self.cells(step, batch, STREAM // batch)])
        return table(HOURS.replace("recipe | GFLOP an image", "batch"), rows)

    def cells(self, step: Step, batch: int, steps: int) -> list[str]:
        wanted = batch / step.on_gpu
        split = f" in {step.accumulation}" if step.accumulation > 1 else ""
        return [
            f"{step.images:g}{split}",
            f"{step.memory_gb:.0f}",
            f"{1e3 * step.seconds:.0f}",
            f"{steps * step.seconds / 3600:.1f}",
            f"{wanted:,.0f}",
            f"{wanted * self.assume.image_kb / 1e6:.2f}",
            f"{step.cores_per_gpu:.0f}",
            f"{step.bound_by}",
        ]

    def parts(self) -> str:
        """Where a step goes, for the recipe that is streamed."""
        rows = []
        for n in GPUS:
            step = self.step(STREAMED, n)
            assert step is not None
            parts = (step.compute, step.gradients, step.synchronised_bn, step.statistics, step.overhead, step.data)
            rows.append([n, *(f"{1e3 * seconds:.1f}" for seconds in parts)])
        return table("GPUs | compute | gradients, not hidden | SyncBN | F | other | data, at the assumed cores", rows)

    def order(self) -> str:
        cost, rows = self.counts["order"], []
        for label, images in (("ImageNet", IMAGENET), ("a billion images", STREAM)):
            scale = images * math.log2(images) / (cost["images"] * math.log2(cost["images"]))
            rows.append([label, f"{cost['seconds'] * scale:.1f}", f"{cost['bytes'] * images / 1e9:.2f}"])
        return table("data | order of an epoch (s) | its peak (GB a process)", rows)

    def breaks(self) -> str:
        """Need over what there is, and waiting over computing; the largest above 1 gives way first."""
        rows = []
        for label, images in (("ImageNet", IMAGENET), ("a billion images", STREAM)):
            for n in GPUS:
                step = self.step(STREAMED, n)
                assert step is not None
                order = self.counts["order"]["bytes"] * images
                needs = {
                    "cores": step.cores_per_gpu / self.assume.cores_per_gpu,
                    "GPU memory": step.memory_in_one_gb / self.assume.gpu_memory_gb,
                    "host memory": order * self.assume.gpus_per_node / (1e9 * self.assume.host_memory_gb),
                    "waiting": (step.gradients + step.synchronised_bn + step.statistics) / step.compute,
                }
                worst = max(needs, key=lambda need: needs[need])
                efficiency = self.rate(n) / self.rate(1)
                cells = [f"{need:.2g}" for need in needs.values()]
                rows.append([label, n, *cells, f"{100 * efficiency:.0f}", worst if needs[worst] > 1 else "nothing"])
        head = "data | GPUs | cores | GPU memory | host memory | waiting | images/s a GPU, of one GPU's (%)"
        return table(f"{head} | gives way first", rows)

    def data(self) -> str:
        seconds = self.counts["core_seconds"]
        rows = [
            [f"size of a {PICTURE[0]} x {PICTURE[1]} JPEG (kB)", f"{self.counts['picture_bytes'] / 1e3:.0f}"],
            ["one core, decode and two crops (ms an image)", f"{1e3 * seconds:.1f}"],
            ["images/s of one core", f"{1 / seconds:.0f}"],
            ["images/s that a GPU takes, 8 GPUs, " + STREAMED, f"{self.rate(8):.0f}"],
        ]
        return table("what | value", rows)

    def rate(self, n: int) -> float:
        step = self.step(STREAMED, n)
        assert step is not None
        return step.images / step.on_gpu

    def assumptions(self) -> str:
        return table("assumption | value", [[f"`{k}`", f"{v:g}"] for k, v in asdict(self.assume).items()])

    def blocks(self) -> dict[str, Callable[[], str]]:
        names = ("collectives", "memory", "data", "assumptions", "hours", "parts", "stream", "order", "breaks")
        return {name: getattr(self, name) for name in names}


def fill(page: Path, projection: Projection) -> None:
    """Put each table between its marks, ``<!-- name -->`` and ``<!-- end -->``."""
    text = page.read_text(encoding="utf-8")
    for name, make in projection.blocks().items():
        text, found = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)", lambda m, make=make: f"{m[1]}{make()}\n{m[2]}", text, flags=re.S
        )
        if found != 1:
            raise SystemExit(f"{page} has {found} places for the table {name!r}, expected one")
    page.write_text(text, encoding="utf-8")

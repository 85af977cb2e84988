"""The tables of docs/scaling.md, from what was counted and what is assumed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, replace
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
    "recipe, GFLOP an image | GPUs | images a GPU | memory (GB) | step (ms) | hours | between | images/s wanted"
    " | GB/s wanted | cores a GPU | bound by"
)


def table(head: str, rows: Iterable[Iterable[object]]) -> str:
    lines = [f"| {head} |", "|" + "---|" * (head.count("|") + 1)]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def short(size: float) -> str:
    """Bytes in a unit that suits them."""
    unit, scale = next((u, s) for u, s in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)) if size >= s or s == 1.0)
    value = size / scale
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"


class Projection:
    """The page's tables, from what was counted and what is assumed."""

    def __init__(self, counts: dict[str, Any], assume: Assumptions) -> None:
        self.counts, self.assume = counts, assume
        self.counted = {name: {**counts["4"][name], "work": counts["1"][name]["work"]} for name in RECIPES}

    def step(self, name: str, n: int, batch: int | None = None, **changed: Any) -> Step | None:
        """None where the recipe's batch has no image for some process. ``changed``: assumptions, and ``bn_group``."""
        batch, group = batch or ssl_hub.get_recipe(name).train.batch_size, changed.pop("bn_group", 0)
        if batch < n:
            return None
        core_seconds, assume = self.counts["core_seconds"], replace(self.assume, **changed)
        counted = self.counted[name]
        return predict(counted, batch=batch, n=n, core_seconds=core_seconds, assume=assume, bn_group=group)

    def surely(self, name: str, n: int, batch: int | None = None, **changed: Any) -> Step:
        step = self.step(name, n, batch, **changed)
        assert step is not None
        return step

    def hours_between(self, name: str, n: int, batch: int, steps: int) -> str:
        """At the highest and the lowest of the assumed rates of a GPU."""
        rates = (self.assume.gpu_tflops_high, self.assume.gpu_tflops_low)
        ends = (steps * self.surely(name, n, batch, gpu_tflops=rate).seconds / 3600 for rate in rates)
        return " to ".join(f"{end:.1f}" for end in ends)

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
            label = f"{name}, {self.counted[name]['work']['flops'] / 1e9:.1f}"
            for n in GPUS:
                step = self.step(name, n)
                if step is None:
                    rows.append([label, n, f"{recipe.train.batch_size / n:g}", *["-"] * 7, "too few images"])
                else:
                    between = self.hours_between(name, n, recipe.train.batch_size, steps)
                    rows.append([label, n, *self.cells(step, recipe.train.batch_size, steps, between)])
        return table(HOURS, rows)

    def stream(self) -> str:
        recipe = ssl_hub.get_recipe(STREAMED)
        rows = []
        for batch in (recipe.train.batch_size, 4 * recipe.train.batch_size):
            for n in GPUS:
                between = self.hours_between(STREAMED, n, batch, STREAM // batch)
                rows.append([batch, n, *self.cells(self.surely(STREAMED, n, batch), batch, STREAM // batch, between)])
        return table(HOURS.replace("recipe, GFLOP an image", "batch"), rows)

    def cells(self, step: Step, batch: int, steps: int, between: str) -> list[str]:
        wanted = batch / step.on_gpu
        split = f" in {step.accumulation}" if step.accumulation > 1 else ""
        return [
            f"{step.images:g}{split}",
            f"{step.memory_gb:.0f}",
            f"{1e3 * step.seconds:.0f}",
            f"{steps * step.seconds / 3600:.1f}",
            between,
            f"{wanted:,.0f}",
            f"{wanted * self.assume.image_kb / 1e6:.2f}",
            f"{step.cores_per_gpu:.0f}",
            f"{step.bound_by}",
        ]

    def parts(self) -> str:
        """Where a step goes, for the recipe that is streamed."""
        rows = []
        for n in GPUS:
            step = self.surely(STREAMED, n)
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
                step = self.surely(STREAMED, n)
                held = images * (self.counts["order"]["bytes"] + self.counts["host"]["names"]["ours"]["held"])
                needs = {
                    "cores": step.cores_per_gpu / self.assume.cores_per_gpu,
                    "GPU memory": step.memory_in_one_gb / self.assume.gpu_memory_gb,
                    "host memory": held * self.assume.gpus_per_node / (1e9 * self.assume.host_memory_gb),
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
        step = self.surely(STREAMED, n)
        return step.images / step.on_gpu

    def groups(self) -> str:
        """BN over groups of GPUs (``train.sync_bn_group``), for the recipe that is streamed."""
        recipe = ssl_hub.get_recipe(STREAMED)
        steps, rows = recipe.train.epochs * (IMAGENET // recipe.train.batch_size), []
        for n in GPUS:
            for group in sorted({min(group, n) for group in (8, 32, n)}):
                step = self.surely(STREAMED, n, bn_group=group)
                seen = round(step.images / step.accumulation * group)
                share = f"{1e3 * step.synchronised_bn:.1f}"
                rows.append([n, group, seen, share, f"{1e3 * step.seconds:.0f}", f"{steps * step.seconds / 3600:.1f}"])
        return table("GPUs | in a group | images that BN sees | SyncBN (ms) | step (ms) | hours", rows)

    def assumptions(self) -> str:
        return table("assumption | value", [[f"`{k}`", f"{v:g}"] for k, v in asdict(self.assume).items()])

"""A process of a run on a stream of 23 images: straight through, or stopped and resumed. See test_stream_runs."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from accelerate import Accelerator

import ssl_hub
from ssl_hub.data import addresses, streams

STEPS, STOP = 6, 4
SETTINGS: dict[str, Any] = {
    "data.stream": True, "data.shuffle_buffer": 5, "train.batch_size": 4, "train.max_steps": STEPS,
    "runtime.workers": 2, "runtime.log_every_steps": 1,
}  # fmt: skip


def train(shards: str, output: Path, **changes: Any) -> None:
    ssl_hub.pretrain(
        "directpred-digits", data=shards, output=output, overrides={**SETTINGS, **changes.pop("settings", {})},
        **changes,
    )  # fmt: skip


def main(folder: Path, shards: str, again: str) -> None:
    """``again`` is another address of the same shards."""
    addresses.WAITS = (0,) * 5
    seen: list[int] = []
    original = streams.views_of_crops

    def noted(views: Any, crops: Any, indices: Any, **options: Any) -> Any:
        seen.extend(indices.tolist())
        return original(views, crops, indices, **options)

    streams.views_of_crops = noted
    Accelerator.end_training = lambda self: None  # it would end the process group, which is of more than one run here
    train(shards, folder / "straight")
    (folder / f"seen-{os.environ['RANK']}.json").write_text(json.dumps(seen))
    train(again, folder / "stopped", settings={"train.max_steps": STOP})
    train(again, folder / "stopped", resume=True, allow_change=["train.max_steps"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

"""Fine-tune a release with transformers' Trainer, on a task of its own: is the digit odd or even?

    python examples/finetune_transformers.py

Seconds on one core, no download. The release's folder is an ordinary checkpoint to transformers, published or not.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import numpy as np
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModelForImageClassification,
    BaseImageProcessor,
    EvalPrediction,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    logging,
    set_seed,
)

import ssl_hub  # noqa: F401 - timm, through which transformers loads, learns of the small-image ResNets
from ssl_hub.data.sources import open_source
from ssl_hub.hub.store import local

NAMES = {0: "even", 1: "odd"}


def odd_or_even(split: str, processor: BaseImageProcessor, count: int | None = None) -> list[dict[str, Any]]:
    """The first ``count`` digits of a split, as the release's own processor prepares them."""
    digits = open_source("digits", split).subset(slice(count))
    assert digits.labels is not None
    pixels = processor([digits.image(i) for i in range(len(digits))], return_tensors="pt")["pixel_values"]
    return [{"pixel_values": x, "labels": int(y) % 2} for x, y in zip(pixels, digits.labels, strict=True)]


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float(np.mean(np.argmax(prediction.predictions, axis=1) == prediction.label_ids))}


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("release", nargs="?", default="directpred-digits")
    parser.add_argument("--images", type=int, default=100, help="labelled ones to train on (default 100)")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=2e-3)
    arguments = parser.parse_args(argv)

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    checkpoint = local(arguments.release)  # a published one is "OWNER/NAME"
    processor = AutoImageProcessor.from_pretrained(checkpoint)
    train, test = odd_or_even("train", processor, arguments.images), odd_or_even("test", processor)
    config = AutoConfig.from_pretrained(checkpoint, num_labels=2, id2label=NAMES)
    scores = {}
    for start in ("from the release", "from scratch"):
        set_seed(0)
        if start == "from the release":
            model = AutoModelForImageClassification.from_pretrained(
                checkpoint, config=config, ignore_mismatched_sizes=True
            )
        else:
            model = AutoModelForImageClassification.from_config(config)
        with tempfile.TemporaryDirectory() as folder:
            settings = TrainingArguments(
                folder,
                num_train_epochs=arguments.epochs,
                learning_rate=arguments.lr,
                lr_scheduler_type="cosine",
                per_device_train_batch_size=50,
                per_device_eval_batch_size=250,
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                dataloader_pin_memory=False,
            )
            trainer = Trainer(model, settings, train_dataset=train, eval_dataset=test, compute_metrics=accuracy)
            trainer.remove_callback(PrinterCallback)
            trainer.train()
            scores[start] = trainer.evaluate()["eval_accuracy"]
        print(f"{len(train)} labelled images, {start:16} {scores[start]:6.1%} of the test images right")
    return scores


if __name__ == "__main__":
    main()

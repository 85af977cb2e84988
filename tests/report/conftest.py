"""A run that was really trained, for two epochs on digits; tests change copies of it."""

import shutil
from pathlib import Path

import pytest

from ssl_hub.train.loop import pretrain


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {"train.epochs": 2, "runtime.knn_every_epochs": 1, "runtime.checkpoint_every_epochs": 0}
    return pretrain("directpred-digits", output=tmp_path_factory.mktemp("trained") / "run", overrides=settings)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints")))

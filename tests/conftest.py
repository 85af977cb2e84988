"""Every test runs offline, on one thread, with a store of its own.

SSL_HUB_TEST_THREADS and SSL_HUB_TEST_ONEDNN=off hold torch to other kernels; see `make test-kernels`.
"""

import os
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
# One thread: of small tensors, more only wait for each other.
os.environ["OMP_NUM_THREADS"] = os.environ.get("SSL_HUB_TEST_THREADS", "1")

import pytest
import torch

THREADS = int(os.environ["OMP_NUM_THREADS"])
torch.backends.mkldnn.enabled = os.environ.get("SSL_HUB_TEST_ONEDNN") != "off"


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_HUB_HOME", str(tmp_path / "store"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    warnings.filterwarnings("error", message=".*keeps its previous weight.*")

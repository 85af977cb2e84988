"""Every test runs offline, on one thread, with a store of its own, and sees nothing that its surroundings set.

SSL_HUB_TEST_THREADS and SSL_HUB_TEST_ONEDNN=off hold torch to other kernels; see `make test-kernels`.
"""

import itertools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
# One thread: of small tensors, more only wait for each other.
os.environ["OMP_NUM_THREADS"] = os.environ.get("SSL_HUB_TEST_THREADS", "1")

import pytest
import torch

THREADS = int(os.environ["OMP_NUM_THREADS"])
torch.backends.mkldnn.enabled = os.environ.get("SSL_HUB_TEST_ONEDNN") != "off"


# What a launcher, a scheduler, a user's shell or a service for continuous integration would set.
SURROUNDINGS = ("ACCELERATE_", "SLURM_", "TORCHELASTIC_", "SSL_HUB_ORG", "HF_TOKEN", "HF_ENDPOINT")
SURROUNDINGS += ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_", "FORCE_COLOR", "COLUMNS", "LINES")


@pytest.fixture(autouse=True, scope="session")
def _same_everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(SURROUNDINGS)]:
            patch.delenv(name)
        home = tmp_path_factory.mktemp("home")
        patch.setenv("SSL_HUB_HOME", str(home / "store"))
        patch.setenv("HF_HOME", str(home / "hf"))  # where `accelerate launch` would find a user's configuration
        yield


@pytest.fixture(scope="session")
def _stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names of their own, of folders that nobody has made."""
    folder = tmp_path_factory.mktemp("stores")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_store(_stores: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_HUB_HOME", str(next(_stores)))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    warnings.filterwarnings("error", message=".*keeps its previous weight.*")

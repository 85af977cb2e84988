"""A Hub of one's own for each test, as HF_ENDPOINT, HF_TOKEN, HF_HOME and the client's other settings choose one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session, disable_progress_bars

from tests.hub.hub_server import TOKEN, HubServer
from tests.hub.releases import make_release


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """A running Hub that this process's client talks to, logged in, with an empty cache."""
    with HubServer() as server:
        # The client reads these from the environment once, when it is imported.
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.delenv("SSL_HUB_ORG", raising=False)
        disable_progress_bars()
        yield server
        close_session()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Sleeping takes no time, and is written down here."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


@pytest.fixture(scope="session")
def _run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "digits run"
    folder.mkdir()
    make_release(folder)
    return folder


@pytest.fixture
def run(_run: Path, tmp_path: Path) -> Path:
    """A finished run of the digits recipe, probed."""
    return Path(shutil.copytree(_run, tmp_path / "digits run"))

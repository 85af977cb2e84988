"""A Hub of one's own for each test, as HF_ENDPOINT, HF_TOKEN, HF_HOME and the client's other settings choose one; a run
to publish; and checkpoints that are imported, or refused."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.utils import close_session, disable_progress_bars
from torch import nn

from ssl_hub.errors import UsageError
from ssl_hub.hub.importers.importing import import_checkpoint
from tests.hub import checkpoints_of_others as others
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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.pt"


@pytest.fixture
def take(file: Path):
    """Save what a project wrote, the weights of a module, or any content, and import it; by default as for STL-10."""

    def imported(written, recipe=others.STL10, **options):
        content = written
        if isinstance(written, others.Written):
            content = written.content
            recipe = written.recipe if recipe is others.STL10 else recipe
        torch.save(content.state_dict() if isinstance(content, nn.Module) else content, file)
        return import_checkpoint(file, recipe, **options)

    return imported


@pytest.fixture
def refused(take):
    """The error where that is refused with such a text."""

    def error(match, *given, **options):
        with pytest.raises(UsageError, match=match) as raised:
            take(*given, **options)
        return str(raised.value)

    return error

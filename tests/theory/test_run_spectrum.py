"""The spectrum figure of a real run's log."""

import errno
import os

import numpy as np
import pytest
from PIL import Image

from ssl_hub.errors import UsageError
from ssl_hub.theory.run_spectrum import draw_run


def records(*, with_matrix: bool, epochs: int = 4) -> list[dict[str, object]]:
    rng = np.random.default_rng(0)
    lines: list[dict[str, object]] = []
    for epoch in range(1, epochs + 1):
        spectrum = {"correlation": np.sort(rng.uniform(-1e-9, 1, 8)).tolist()}
        if with_matrix:
            spectrum |= {"predictor": np.sort(rng.normal(size=8)).tolist(), "alignment": rng.uniform(size=8).tolist()}
        lines.append({"step": 10 * epoch - 5, "epoch": epoch, "loss": 1.0})
        lines.append({"step": 10 * epoch, "epoch": epoch, "asymmetry": 0.3, "spectrum": spectrum})
    return lines


@pytest.mark.parametrize("with_matrix", [True, False])
def test_figure_is_drawn_with_and_without_a_predictor_matrix(tmp_path, with_matrix):
    path = draw_run(records(with_matrix=with_matrix), tmp_path / "s.png", name="a-run")
    pixels = np.asarray(Image.open(path).convert("L"))
    assert (pixels < 200).sum() > 2000  # something is drawn
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    assert (border > 250).all()  # and nothing is clipped


def test_no_folder_is_made_and_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="the folder .*new does not exist"):
        draw_run(records(with_matrix=True), tmp_path / "new" / "s.png", name="a-run")

    def full_disk(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(UsageError, match=r"cannot write .*s\.png: No space left on device"):
        draw_run(records(with_matrix=True), tmp_path / "s.png", name="a-run")
    assert list(tmp_path.iterdir()) == []


def test_too_few_spectra_and_wrong_formats_are_said(tmp_path):
    with pytest.raises(UsageError, match="a-run has logged 1 spectra, expected two or more"):
        draw_run(records(with_matrix=True, epochs=1), tmp_path / "s.png", name="a-run")
    with pytest.raises(UsageError, match=r"expected \.png, \.pdf or \.svg"):
        draw_run(records(with_matrix=True), tmp_path / "s.jpeg", name="a-run")

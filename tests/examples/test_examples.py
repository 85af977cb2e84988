"""The scripts of ``examples/`` run offline on the bundled release, and starting from it is worth it."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def scores_of(name: str, *words: str) -> dict:
    return runpy.run_path(str(EXAMPLES / name), run_name="example")["main"](list(words))


def test_every_example_is_tested():
    tested = {"frozen_features.py", "finetune_timm.py", "finetune_transformers.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


def test_frozen_features_beat_pixels_in_scikit_learn(capsys: pytest.CaptureFixture[str]):
    scores = scores_of("frozen_features.py")
    for title, score in scores["features"].items():
        assert score > scores["pixels"][title] + 0.05, title
    assert "20 labels a class, 500 test images" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["finetune_timm.py", "finetune_transformers.py"])
def test_finetuning_a_release_beats_training_from_scratch(name: str):
    scores = scores_of(name)
    assert scores["from the release"] > scores["from scratch"] + 0.03

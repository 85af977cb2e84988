"""The scripts of ``examples/`` run offline on the bundled release, and starting from it is worth it."""

import io
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ssl_hub
from ssl_hub.data.views import eval_transform as make_transform

EXAMPLES = Path(__file__).parents[2] / "examples"


def scores_of(name: str, *words: str) -> dict:
    return runpy.run_path(str(EXAMPLES / name), run_name="example")["main"](list(words))


def test_every_example_is_tested():
    tested = {"frozen_features.py", "finetune_timm.py", "finetune_transformers.py"}
    tested |= {"segmentation_torchvision.py", "detection_torchvision.py", "serve_onnx.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


def test_frozen_features_beat_pixels_in_scikit_learn(capsys: pytest.CaptureFixture[str]):
    scores = scores_of("frozen_features.py")
    for title, score in scores["features"].items():
        assert score > scores["pixels"][title] + 0.05, title
    assert "20 labels a class, 500 test images" in capsys.readouterr().out


SLOW = pytest.mark.slow


@pytest.mark.parametrize("name", ["finetune_timm.py", pytest.param("finetune_transformers.py", marks=SLOW)])
def test_finetuning_a_release_beats_training_from_scratch(name: str):
    scores = scores_of(name)
    assert scores["from the release"] > scores["from scratch"] + 0.03


@SLOW
def test_maps_of_a_release_say_which_digit_a_pixel_belongs_to():
    scores = scores_of("segmentation_torchvision.py")
    assert scores["released"] > scores["untrained"] + 0.08


@SLOW
def test_maps_of_a_release_find_digits():
    scores = scores_of("detection_torchvision.py")
    assert scores["released"] > scores["untrained"] + 0.08


@pytest.mark.parametrize("name", ["segmentation_torchvision.py", "detection_torchvision.py"])
def test_torchvision_takes_the_maps_of_a_release(name: str):
    scores = scores_of(name, "--scenes", "4", "--test-scenes", "4", "--epochs", "1")
    assert set(scores) == {"released", "untrained"} and all(0 <= score <= 1 for score in scores.values())


def test_a_service_without_torch_answers_as_the_release_does(tmp_path: Path):
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason="ONNX needs the extra [export]: run `make test-export`")
    example = runpy.run_path(str(EXAMPLES / "serve_onnx.py"), run_name="example")
    assert example["main"]([])["right"] > 0.8
    ssl_hub.export("directpred-digits", tmp_path, head="digits", image_size=40)
    model = ssl_hub.load("directpred-digits", head="digits")
    classify = example["Classifier"](tmp_path)
    transform = make_transform(size=40, mean=(0.5,) * 3, std=(0.5,) * 3)
    draw = np.random.default_rng(0)
    for size in ((41, 40), (40, 41), (63, 200), (17, 9)):  # odd margins, thin and small ones
        image = Image.fromarray(draw.integers(0, 256, (*size, 3), np.uint8))
        file = io.BytesIO()
        image.save(file, "PNG")
        shares = classify([file.getvalue()])[0]
        with torch.no_grad():
            expected = model(transform(image)[None]).softmax(dim=1)[0]
        assert list(shares) == model.label_names
        assert np.allclose(list(shares.values()), expected, atol=1e-5)

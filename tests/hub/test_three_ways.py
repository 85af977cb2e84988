"""One release, loaded by ssl_hub, timm and transformers, each in a process of its own, gives the same features."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ssl_hub.hub.publish import push
from tests.hub.hub_server import HubServer, surroundings

IMAGE = "import torch\nfrom PIL import Image\nimport numpy as np\n" + (
    "pixels = np.random.default_rng(0).integers(0, 256, (40, 28, 3), dtype=np.uint8)\nimage = Image.fromarray(pixels)\n"
)
SSL_HUB = (
    IMAGE
    + """
import ssl_hub
model = ssl_hub.load("hf-hub:ann/digits")
with torch.no_grad():
    features = model(ssl_hub.eval_transform(model)(image)[None])
assert "timm" in __import__("sys").modules
torch.save([features, ssl_hub.load("hf-hub:ann/digits", head="digits")(torch.zeros(1, 3, 16, 16)).detach()], out)
"""
)
# timm first: what it says without ssl_hub, and that importing ssl_hub later mends it.
TIMM = (
    IMAGE
    + """
import timm
try:
    timm.create_model("hf-hub:ann/digits", pretrained=True)
    raise SystemExit("timm has the architecture by itself")
except RuntimeError as error:
    assert "import_ssl_hub" in str(error), error
import ssl_hub
model = timm.create_model("hf-hub:ann/digits", pretrained=True, num_classes=0).eval()
transform = timm.data.create_transform(**timm.data.resolve_data_config(model=model))
classifier = timm.create_model("hf-hub:ann/digits", pretrained=True).eval()
with torch.no_grad():
    torch.save([model(transform(image)[None]), classifier(torch.zeros(1, 3, 16, 16))], out)
"""
)
# ssl_hub first, which loads nothing heavy; then transformers, which imports timm.
TRANSFORMERS = (
    IMAGE
    + """
import ssl_hub
from transformers import AutoImageProcessor, AutoModel, AutoModelForImageClassification
processor = AutoImageProcessor.from_pretrained("ann/digits")
model = AutoModel.from_pretrained("ann/digits").eval()
classifier = AutoModelForImageClassification.from_pretrained("ann/digits").eval()
assert classifier.config.id2label == {i: str(i) for i in range(10)}, classifier.config.id2label
with torch.no_grad():
    features = model(**processor(image, return_tensors="pt")).pooler_output
    torch.save([features, classifier(torch.zeros(1, 3, 16, 16)).logits], out)
"""
)


def in_a_fresh_process(code: str, hub: HubServer, folder: Path) -> list[torch.Tensor]:
    out = folder / "out.pt"
    environment = surroundings(hub, folder / "home", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
    environment.pop("TRANSFORMERS_OFFLINE", None)
    code = f"out = {str(out)!r}\n{code}"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return list(torch.load(out, weights_only=True))


@pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload:DeprecationWarning")  # the client's own
def test_equal_features_and_logits(hub, run, tmp_path):
    push(run, "ann/digits")
    loaded = {}
    for way, code in {"ssl_hub": SSL_HUB, "timm": TIMM, "transformers": TRANSFORMERS}.items():
        (tmp_path / way).mkdir()
        loaded[way] = in_a_fresh_process(code, hub, tmp_path / way)
    features, logits = loaded["ssl_hub"]
    assert features.shape == (1, 128) and logits.shape == (1, 10) and features.std() > 0
    for way in ("timm", "transformers"):
        torch.testing.assert_close(
            loaded[way], [features, logits], atol=1e-5, rtol=1e-5, msg=lambda m, w=way: f"{w}: {m}"
        )

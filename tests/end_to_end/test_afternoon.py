"""An afternoon with a method of one's own, from the built wheel and no clone: written, trained, swept, published."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hub.hub_server import OWNER, TOKEN, HubServer

ROOT = Path(__file__).parents[2]
SHORT = [
    "train.epochs=3", "train.batch_size=32", "runtime.knn_every_epochs=0", "data.pretrain_split=train[:320]",
    "data.train_split=train[:160]", "data.test_split=test[:80]",
]  # fmt: skip


class Desk:
    """An empty folder, with what pip has installed beside it."""

    def __init__(self, folder: Path, hub: str) -> None:
        self.folder, self.site = folder / "desk", folder / "site"
        self.folder.mkdir()
        self.environment = {
            **os.environ, "PYTHONPATH": str(self.site), "SSL_HUB_HOME": str(folder / "store"),
            "HF_HOME": str(folder / "hf"), "HF_ENDPOINT": hub, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1", "OMP_NUM_THREADS": "1", "SSL_HUB_PLUGINS": "on",
        }  # fmt: skip

    def install(self, project: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(self.site)]
        subprocess.run([*pip, str(project)], check=True)

    def python(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    def ssl_hub(self, *words: str, code: int = 0) -> str:
        return self.python("-m", "ssl_hub.cli", *words, code=code)

    def started(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen([sys.executable, *words], cwd=self.folder, env=self.environment, text=True)


@pytest.mark.slow
def test_an_afternoon(tmp_path):
    with HubServer() as hub:
        desk = Desk(tmp_path, hub.url)
        wheel = tmp_path / "wheel"
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheel), str(ROOT)]
        subprocess.run(build, check=True)
        desk.install(next(wheel.glob("ssl_hub-*.whl")))
        assert "no plug-ins" in desk.ssl_hub("plugins")

        # A predictor of one's own, in a package of one's own.
        mine = tmp_path / "mine"
        shutil.copytree(ROOT / "examples" / "plugin", mine)
        desk.install(mine)
        assert "ssl_hub_diagonal  (ssl-hub-diagonal 0.1.0)" in desk.ssl_hub("plugins")

        # Trained on two processes, stopped, and gone on with by its folder alone.
        two = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "-m", "ssl_hub.cli"]
        longer = [word.replace("train.epochs=3", "train.epochs=5") for word in SHORT]  # than its stop takes
        run = ["train", "byol-diagonal-digits", *longer, "--output", "runs/mine"]
        training = desk.started(*two, *run)
        while not list((desk.folder / "runs" / "mine" / "checkpoints").glob("*.pt")):
            assert training.poll() is None
            time.sleep(0.05)
        training.send_signal(signal.SIGTERM)
        training.wait()
        assert not (desk.folder / "runs" / "mine" / "model.safetensors").exists()
        desk.python(*two, "resume", "runs/mine")
        facts = json.loads((desk.folder / "runs" / "mine" / "recipe.json").read_text())["run"]
        assert facts["processes"] == 2 and len(facts["resumed"]) == 1
        assert facts["plugins"] == {"predictor diagonal": "ssl_hub_diagonal"}

        # Two settings by three, two seeds; compared, and for the paper.
        grid = [
            "optim.lr=0.02,0.1",
            "predictor.start=0.5,0.9,1.0",
            "--seeds",
            "2",
            "--jobs",
            "2",
            "--out",
            "runs/sweep",
        ]
        printed = desk.ssl_hub("sweep", "byol-diagonal-digits", *SHORT, *grid)
        rows = [line for line in printed.splitlines() if line.startswith(("| 0.02", "| 0.1"))]
        assert rows and all(row.count("±") == 3 for row in rows)
        assert (desk.folder / "runs" / "sweep" / "sweep.svg").stat().st_size > 1000
        assert r"\begin{tabular}{llll}" in desk.ssl_hub("sweep", "--out", "runs/sweep", "--format", "latex")
        other = "runs/sweep/lr=0.1,start=0.9/seed-0"
        assert "predictor.start" in desk.ssl_hub("compare", other, "runs/sweep/lr=0.1,start=0.5/seed-0")

        # Published, and loaded where the package is not.
        desk.ssl_hub("push", "runs/mine", f"{OWNER}/mine")
        (desk.site / "ssl_hub_diagonal").rename(tmp_path / "away")
        next(desk.site.glob("ssl_hub_diagonal-*.dist-info")).rename(tmp_path / "away.dist-info")
        load = f"import ssl_hub, torch; print(ssl_hub.load('hf-hub:{OWNER}/mine')(torch.zeros(1, 3, 16, 16)).shape)"
        assert desk.python("-c", load) == "torch.Size([1, 128])\n"
        desk.ssl_hub("resume", "runs/mine", code=2)

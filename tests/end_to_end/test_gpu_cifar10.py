"""The measurements that wait for a GPU, proven on a CPU: they run, say that they measure nothing, and count rightly."""

import json
import sys

import numpy as np
import pytest
from PIL import Image

from ssl_hub.data.sources import open_source
from ssl_hub.model.metrics import Metrics
from tests.end_to_end.test_launchers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import gpu_cifar10
    import gpu_data
    import gpu_profile
    import gpu_result
finally:
    sys.path.pop(0)

PROOF = "no GPU: this proves the script and measures nothing"


def run(monkeypatch, capsys, *arguments) -> dict:
    monkeypatch.setattr(sys, "argv", ["gpu_cifar10.py", *map(str, arguments)])
    gpu_cifar10.main()
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_run_leaves_its_results_and_a_profile(tmp_path, monkeypatch, capsys):
    file, data = tmp_path / "gpu.json", ["--data", "digits", "--recipes", "directpred-digits"]
    found = run(monkeypatch, capsys, *data, "--steps", 4, "--batch-size", 64, "--thin", 4, "--profile-steps", 2,
                "--seed", 3, "--result", file)  # fmt: skip
    assert found["small"] == PROOF and found["seed"] == 3 and found["versions"]["torch"] and found["git_commit"]
    assert "--seed 3" in found["command"] and found["card"]
    written, profile = (json.loads(f.read_text()) for f in (file, tmp_path / "gpu-profile.json"))
    assert written["small"] == profile["small"] == PROOF
    (row,) = written["runs"]
    assert row["steps"] == 4 and row["images_per_second"] > 0 and row["window"].startswith("steps 2 to 4: all after ")
    assert row["goal"] == {"training_minutes": 5.0, "reached": "not 100 epochs"} and row["top1"]
    assert profile["steps"] == 2 and profile["operators"] > 100 and len(profile["longest"]) == 10
    assert sum(one["share"] for one in profile["longest"]) <= 1 and profile["device"].startswith("cpu")


def test_parts_are_measured_small_without_a_gpu(tmp_path, monkeypatch, capsys):
    found = run(monkeypatch, capsys, "--parts", "--result", tmp_path / "parts.json")
    assert found["small"] == PROOF and json.loads((tmp_path / "parts.json").read_text()) == found
    assert all(row["apart"] < 2e-3 and row["eigh"]["alone_ms"] > 0 for row in found["square_root"])
    assert all(row["apart"] < 1e-5 for row in found["blur"])
    assert [(row["compile"], row["images_per_second"] > 0) for row in found["byol_step"]] == [(False, True)]


@pytest.mark.slow
def test_parts_are_measured_compiled(monkeypatch, capsys):
    found = run(monkeypatch, capsys, "--parts", "--compile", "true", "reduce-overhead")
    assert [row["compile"] for row in found["byol_step"]] == [True, "reduce-overhead"]


@pytest.mark.parametrize(("name", "paper"), [(gpu_cifar10.RECIPES[0], 85.21), (gpu_cifar10.RECIPES[1], 84.49)])
@pytest.mark.parametrize("seconds", [2.0, 4.0])
def test_a_rate_is_steady_and_the_goal_is_of_the_whole_run(tmp_path, name, paper, seconds):
    """390 steps an epoch: the first takes a minute more, which is in the minutes and not in the rate."""
    metrics = Metrics(tmp_path, from_step=-1, from_batch=0)
    for epoch in range(1, 101):
        for batch, took in ((390 * epoch - 190, 0.5 * seconds + 60 * (epoch == 1)), (390 * epoch, 0.5 * seconds)):
            reading = {"step": batch, "batch": batch, "epoch": epoch, "loss": 0.1, "seconds": took, "data_share": 0.2}
            metrics.write(reading | {"images_per_second": 1.0})
    metrics.close()
    found = gpu_cifar10.outcome(name, tmp_path, {})
    assert found["images_per_second"] == pytest.approx(390 * 128 / seconds)
    assert found["window"].startswith("steps 391 to 39000: all after the first epoch")
    assert found["training_minutes"] == pytest.approx((100 * seconds + 60) / 60)
    assert found["goal"] == {"training_minutes": 5.0, "reached": seconds == 2.0}
    assert found["paper"]["top1"] == paper and found["data_share"] == pytest.approx(0.2)


def test_a_trace_of_a_gpu_in_sum():
    """Two steps of 1 ms: kernels that overlap count once, and replayed ones were launched by one call."""

    def span(category, name, start, duration):
        return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "tid": 1}

    events = [
        span("kernel", "gemm", 0, 300), span("kernel", "gemm", 100, 300), span("gpu_memcpy", "copy", 1000, 100),
        span("kernel", "add", 1050, 250), span("cuda_runtime", "cudaLaunchKernel", 0, 5),
        span("cuda_driver", "cuLaunchKernelEx", 10, 5), span("cuda_runtime", "cudaGraphLaunch", 20, 5),
        span("cuda_runtime", "cudaMemcpyAsync", 30, 5), span("cuda_runtime", "cudaStreamSynchronize", 40, 5),
        span("cpu_op", "aten::mm", 0, 50), {"ph": "M", "name": "process_name"},
    ]  # fmt: skip
    found = gpu_profile.in_sum(events, steps=2, step_seconds=1e-3)
    assert found["kernels"] == 1.5 and found["kernel_launches"] == 1 and found["graph_launches"] == 0.5
    assert found["waits_of_the_host"] == 0.5 and found["busy_ms"] == pytest.approx(0.35)
    assert found["idle_share"] == pytest.approx(0.65)
    assert found["idle_share_in_the_profiler"] == pytest.approx(1 - 700 / 1300)
    assert [(one["name"], one["calls"]) for one in found["longest"]] == [("gemm", 1), ("add", 0.5), ("copy", 0.5)]
    assert found["longest"][0]["ms"] == pytest.approx(0.3)


def test_an_operator_is_charged_what_is_its_own():
    spans = [
        {"name": name, "ts": start, "dur": duration, "tid": 1}
        for name, start, duration in (("outer", 0, 100), ("inner", 10, 30), ("inner", 50, 20), ("outer", 200, 10))
    ]
    assert gpu_profile.own_times(spans) == {"inner": [30, 20], "outer": [50, 10]}


def test_the_file_is_named_after_the_card(monkeypatch):
    monkeypatch.setattr(gpu_result, "device_name", lambda device: "NVIDIA H100 80GB HBM3")
    assert gpu_result.default_file("cifar10").name == "gpu-cifar10-nvidia-h100-80gb-hbm3.json"
    assert gpu_result.RESULTS == ROOT / "benchmarks" / "results"


def test_packed_data_is_what_was_packed(tmp_path, capsys):
    for split, count in (("train", 3), ("test", 2)):
        for label in ("cat", "dog"):
            (tmp_path / "photos" / split / label).mkdir(parents=True)
            for index in range(count):
                picture = Image.effect_noise((8, 8), 20 * index + 20).convert("RGB")
                picture.save(tmp_path / "photos" / split / label / f"{index}.png")
    gpu_data.pack(str(tmp_path / "photos"), tmp_path / "packed.npz")
    assert "packed.npz: 0.0 MiB" in capsys.readouterr().out
    gpu_data.register_packed(tmp_path / "packed.npz")
    for split in ("train", "test"):
        packed, was = open_source(gpu_data.PACKED, split), open_source(str(tmp_path / "photos"), split)
        assert packed.classes == was.classes and np.array_equal(packed.labels, was.labels)
        assert all(np.array_equal(packed.array(i), was.array(i)) for i in range(len(was)))

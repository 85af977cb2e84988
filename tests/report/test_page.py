"""A report is one file that says what there is, what is missing, and nothing that is not so."""

import html
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ssl_hub.cli import main
from ssl_hub.data.images import Source
from ssl_hub.data.sources import SOURCES
from ssl_hub.data.stored import Pixels
from ssl_hub.errors import UsageError
from ssl_hub.model.results import Result, append_results
from ssl_hub.report.facts import modifications, published
from ssl_hub.report.html import Missing
from ssl_hub.report.measured import side_by_side
from ssl_hub.report.page import SECTIONS, write_report
from ssl_hub.report.record import read_record, read_records
from ssl_hub.zoo import get_recipe


def sections(path) -> dict[str, str]:
    """The HTML of each section of a report."""
    text = path.read_text()
    return dict(re.findall(r'<section id="([a-z]+)">(.*?)</section>', text, flags=re.S))


def missing(section: str) -> list[str]:
    return re.findall(r'<p class="missing">Missing: (.*?)</p>', section)


def test_a_whole_run_misses_nothing(run, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", str(run), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    found = sections(out)
    assert list(found) == [section.id for section in SECTIONS]
    assert {name: missing(text) for name, text in found.items() if missing(text)} == {}
    assert out.stat().st_size < 1_000_000
    assert "Modified: train.epochs 60 → 2" in found["results"]
    assert "not measured" not in found["results"]
    assert '<strong class="warn">narrow</strong>' in found["results"]
    assert "an effective rank below 3" in found["health"]
    assert "Dashed: narrow below 50 %, collapsed below 10 %." in found["health"]
    assert "All measurements (4)" in found["results"]
    assert "digits, test split, linear-cached: 1,297 labels (train)" in found["results"]
    assert found["gallery"].count("<figure") == 8 * 9
    assert len(re.findall(r'<td title="', found["confusion"])) == 100


def test_nothing_in_the_file_points_elsewhere(run, tmp_path):
    text = write_report([run], tmp_path / "r.html").read_text()
    addresses = re.findall(r'(?:src|href|action|poster)="([^"]*)"', text) + re.findall(r"url\(([^)]*)\)", text)
    assert {a.partition(":")[0] if a.startswith("data:") else a[0] for a in addresses} <= {"data", "#", "$"}
    assert "default-src 'none'" in html.unescape(text)


def test_a_run_killed_half_way_is_told_section_by_section(run, tmp_path):
    for name in ("model.safetensors", "method.safetensors", "config.json", "results.json"):
        (run / name).unlink()
    shutil.rmtree(run / "heads")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][:4]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 20, "lo')
    found = sections(write_report([run], tmp_path / "r.html"))
    assert missing(found["training"]) == []  # of kNN accuracy, there is that of the start
    assert missing(found["spectrum"])[0].startswith("no spectrum was logged")
    for name in ("gallery", "map", "confusion"):
        assert [text.partition(" is ")[2] for text in missing(found[name])] == [
            "not finished and has no checkpoint yet; go on training it"
        ]
    assert missing(found["views"]) == missing(found["recipe"]) == missing(found["throughput"]) == []
    text = (tmp_path / "r.html").read_text()
    assert "not finished: step 15 of 40" in text
    assert "1 of 5 lines of metrics.jsonl are cut short or damaged" in text


@pytest.mark.parametrize("kept", ["metrics.jsonl", "config.json", "recipe.json"])
def test_one_file_alone_still_gives_a_page(run, tmp_path, kept):
    for path in run.iterdir():
        if path.name != kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    found = sections(write_report([run], tmp_path / "r.html"))
    assert list(found) == [section.id for section in SECTIONS]
    assert missing(found["gallery"]) != []


def test_an_empty_log_and_numbers_that_are_not_finite(run, tmp_path):
    (run / "metrics.jsonl").write_text("")
    assert missing(sections(write_report([run], tmp_path / "r.html"))["training"])[0] == "no reading yet"
    strange = {"step": 5, "epoch": 1, "loss": float("nan"), "lr": "x", "spectrum": {"correlation": [float("inf"), 1]}}
    (run / "metrics.jsonl").write_text(json.dumps(strange) + "\n" + json.dumps(strange | {"step": 10}) + "\n")
    text = write_report([run], tmp_path / "r.html").read_text()
    blocks = re.findall(r'<script type="application/json">(.*?)</script>', text)
    for block in blocks:
        json.loads(block, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_data_that_is_gone_or_unlabelled(run, tmp_path):
    found = sections(write_report([run], tmp_path / "r.html", data="./gone"))
    for name in ("views", "gallery", "map", "confusion"):
        assert missing(found[name])[0].startswith("data path &#x27;./gone&#x27; does not exist")
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(12):
        Image.fromarray(np.full((20, 20, 3), 20 * i, np.uint8)).save(folder / f"{i:02}.png")
    found = sections(write_report([run], tmp_path / "r.html", data=str(folder)))
    assert missing(found["gallery"]) == missing(found["map"]) == missing(found["views"]) == []
    assert "have no labels" in missing(found["confusion"])[0] or "has no labels" in missing(found["confusion"])[0]
    first = re.search(r'<div class="neighbours">(.*?)</div>', found["gallery"]).group(1)
    names = re.findall(r"<span>(.*?)</span>", first)
    assert names[0] not in names[1:]  # an image is not its own neighbour


def test_what_never_changed_is_a_number_and_no_curve(run, tmp_path):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line | {"lr": 0.03}) + "\n" for line in lines))
    training = sections(write_report([run], tmp_path / "r.html"))["training"]
    assert "<figcaption>Learning rate</figcaption><p><b>0.03</b>, constant</p>" in training
    assert '<figcaption>Loss</figcaption><div class="plot"' in training


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("recipes/train.py byol-digits", "accelerate launch --num_processes 2 recipes/train.py byol-digits"),
        ("python -m ssl_hub train byol-digits", "accelerate launch --num_processes 2 -m ssl_hub train byol-digits"),
        ("/somewhere/bin/ssl-hub train byol-digits", "ssl-hub train byol-digits"),
        ("mine.py --x 'a b'", "mine.py --x &#x27;a b&#x27;"),
    ],
)
def test_the_command_is_one_to_type(run, tmp_path, command, shown):
    whole = json.loads((run / "recipe.json").read_text())
    whole["run"] |= {"command": command, "processes": 2}
    (run / "recipe.json").write_text(json.dumps(whole))
    assert f"<pre><code>{shown}</code></pre>" in sections(write_report([run], tmp_path / "r.html"))["recipe"]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("recipes/train.py x", "accelerate launch --num_processes 1 --mixed_precision bf16 recipes/train.py x"),
        ("/somewhere/bin/ssl-hub train x", "ACCELERATE_MIXED_PRECISION=bf16 ssl-hub train x"),
    ],
)
def test_the_command_says_the_precision_that_the_run_had(run, tmp_path, command, shown):
    whole = json.loads((run / "recipe.json").read_text())
    whole["run"] |= {"command": command, "processes": 1, "precision": "bf16"}
    (run / "recipe.json").write_text(json.dumps(whole))
    assert f"<pre><code>{shown}</code></pre>" in sections(write_report([run], tmp_path / "r.html"))["recipe"]


def test_several_runs_stand_side_by_side(run, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(run, other)
    whole = json.loads((other / "recipe.json").read_text())
    whole["recipe"]["optim"]["lr"] = 0.5
    (other / "recipe.json").write_text(json.dumps(whole))
    (other / "model.safetensors").unlink()
    found = sections(write_report([run, other], tmp_path / "r.html"))
    assert re.findall(r"<code>(.*?)</code></td><td>(.*?)</td><td>(.*?)</td>", found["recipe"]) == [
        ("optim.lr", "0.03", "0.5")
    ]
    loss = json.loads(re.search(r"<figcaption>Loss</figcaption>.*?json\">(.*?)</script>", found["training"]).group(1))
    assert [(s["label"], s["run"]) for s in loss["series"]] == [("run", 0), ("other", 1)]
    assert len(missing(found["gallery"])) == 1
    assert "model.safetensors is missing" in missing(found["gallery"])[0]


def released(run, recipe, **settings):
    """The run, as though it had trained this recipe."""
    from ssl_hub.codec import to_dict

    whole = json.loads((run / "recipe.json").read_text())
    whole["recipe"] = to_dict(get_recipe(recipe, **settings))
    (run / "recipe.json").write_text(json.dumps(whole))
    return run


def test_published_numbers_stand_beside_runs_of_the_same_settings_alone(run):
    released(run, "directpred-r18-cifar10-100ep", **{"train.seed": 3, "runtime.workers": 0})
    append_results(run, [Result(metric="top1", value=80.0, dataset="uoft-cs/cifar10", split="test", protocol="linear")])
    (expected, measured), *_ = published(read_record(run, "run"))
    assert expected.metric == "CIFAR-10 linear probe top-1 (%)"
    assert measured.value == 80.0
    released(run, "directpred-r18-cifar10-100ep", **{"train.epochs": 5})
    with pytest.raises(Missing, match="Modified: train.epochs 100 → 5. No published number belongs to this run"):
        published(read_record(run, "run"))
    released(run, "directpred-r18-cifar10-100ep", **{"data.name": "digits"})
    assert modifications(read_record(run, "run")) == "data.name uoft-cs/cifar10 → digits"
    released(run, "directpred-r18-cifar10-100ep", **{"data.name": "/disk/cifar10"})
    assert modifications(read_record(run, "run")) == ""


LABELS = {"train_split": "train", "train_size": 1297, "layer": "backbone"}


def probed(run, value, **changes):
    """The run with that linear probe alone."""
    about = {"metric": "top1", "dataset": "digits", "split": "validation", "protocol": "linear-cached"}
    append_results(run, [Result(value=value, **(about | {"settings": LABELS} | changes))])


def test_the_headline_is_of_the_whole_split_and_what_is_left_out_is_said(run, tmp_path):
    (run / "results.json").unlink()
    probed(run, 64.0)
    probed(run, 90.0, split="validation[:100]")
    probed(run, 99.0, split="train")
    found = sections(write_report([run], tmp_path / "r.html"))["results"]
    assert "<strong>64.0<small> %</small></strong>" in found
    assert "Left out: 90.00 %, linear-cached: on a part of a split (validation[:100]), where all of validation" in found
    assert "Left out: 99.00 %, linear-cached: measured on the training split (train)." in found
    assert "Left out because" in found


def test_runs_side_by_side_show_the_same_measurement(run, tmp_path):
    other, third = (Path(shutil.copytree(run, tmp_path / name)) for name in ("other", "third"))
    for folder in (run, other, third):
        (folder / "results.json").unlink()
    probed(run, 61.0)
    probed(run, 70.0, protocol="linear-simsiam")
    probed(other, 72.0, protocol="linear-simsiam")
    probed(third, 73.0, protocol="linear-simsiam")
    records = read_records([run, other, third])
    shown, aside = side_by_side(records, "linear")
    assert [result.value for result in shown] == [70.0, 72.0, 73.0] and aside == []
    (third / "results.json").unlink()
    probed(third, 95.0, split="validation[:50]", protocol="linear-simsiam")
    shown, aside = side_by_side(read_records([run, other, third]), "linear")
    assert [result and result.value for result in shown] == [61.0, None, None]
    assert aside == [
        "72.00 % of other, linear-simsiam: not comparable (protocol linear-simsiam and linear-cached)",
        "95.00 % of third, linear-simsiam: not comparable (protocol linear-simsiam and linear-cached; split "
        "validation[:50] and validation)",
    ]
    assert "Left out: 72.00 % of other" in sections(write_report([run, other, third], tmp_path / "r.html"))["results"]


def test_a_hundred_epochs_fit_in_five_megabytes(run, tmp_path, monkeypatch):
    """50,000 readings, the widest spectra and photographs of noise, which compress worst."""
    draw = np.random.default_rng(0)
    reading = {k: 0.123456789 for k in ("loss", "lr", "momentum", "images_per_second", "data_share", "feature_std",
               "healthy_std", "effective_rank", "alignment", "asymmetry", "seconds")}  # fmt: skip
    spectrum = {name: draw.random(512).round(5).tolist() for name in ("correlation", "predictor", "alignment")}
    with (run / "metrics.jsonl").open("w") as file:
        for step in range(1, 50_001):
            line = reading | {"step": 10 * step, "epoch": -(-step // 500)}
            if step % 500 == 0:
                line |= {"spectrum": spectrum, "knn_top1": 50.0}
            file.write(json.dumps(line) + "\n")
    pixels = draw.integers(0, 256, (300, 256, 256, 3), dtype=np.uint8)
    names, labels = [f"class {i}" for i in range(100)], np.arange(300) % 100
    monkeypatch.setitem(SOURCES._entries, "noise", lambda split: Source("noise", split, Pixels(pixels), classes=names,
                        labels=labels))  # fmt: skip
    assert write_report([run], tmp_path / "r.html", data="noise").stat().st_size < 5_000_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"out": "report.pdf"}, "a report is an HTML file, got 'report.pdf'; name it report.html"),
        ({"out": "gone/report.html"}, "does not exist; create it"),
        ({"out": "r.html", "runs": []}, "a report needs at least one run"),
        ({"out": "r.html", "runs": ["nowhere"]}, "no run at 'nowhere'"),
    ],
)
def test_bad_input_says_what_to_do(run, arguments, message):
    with pytest.raises(UsageError, match=message):
        write_report(arguments.get("runs", [run]), arguments["out"])


def test_only_the_papers_protocol_on_the_runs_own_data_is_compared_with_the_papers_number(run, tmp_path):
    released(run, "directpred-r18-cifar10-100ep")
    (run / "results.json").unlink()

    def row(**changes):
        about = {"metric": "top1", "split": "test", "dataset": "uoft-cs/cifar10", "settings": {"epochs": 50}}
        append_results(run, [Result(value=70.0, **(about | changes))])
        found = sections(write_report([run], tmp_path / "r.html"))["results"]
        return found.partition("Against the published numbers")[2]

    assert "70.0 %" not in row(dataset="digits", protocol="linear-authors-small")
    cached = row(protocol="linear-cached")
    assert "70.0 % (linear-cached)" in cached and "-15.2" not in cached
    (run / "results.json").unlink()
    quick = row(protocol="linear-authors-small", settings={"epochs": 2})
    assert "70.0 % (linear-authors-small (epochs=2))" in quick and "-15.2" not in quick
    assert "70.0 % (linear-authors-small)" in (whole := row(protocol="linear-authors-small")) and "-15.2" in whole

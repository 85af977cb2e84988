"""Whatever is missing or damaged in a run folder becomes a sentence, never an error."""

import json
import subprocess
import sys

import pytest

import ssl_hub
from ssl_hub.errors import UsageError
from ssl_hub.model.results import Result, append_results
from ssl_hub.report.record import read_record, read_records


def test_a_whole_run_has_no_problems(run):
    record = read_record(run, "run")
    assert record.problems == ()
    assert record.recipe is not None and record.recipe.name == "directpred-digits"
    assert (record.step, record.steps, record.steps_per_epoch) == (40, 40, 20)
    assert record.state == "finished, 40 steps"
    assert record.health.state == "narrow"  # two epochs: effective rank 1.5 of 64
    assert record.result("linear").dataset == "digits"


def test_a_line_cut_short_is_left_out_and_counted(run):
    metrics = run / "metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"step": 45, "epo')
    record = read_record(run, "run")
    assert record.step == 40
    assert record.problems == ("1 of 10 lines of metrics.jsonl are cut short or damaged, and are left out",)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("recipe.json", None, "recipe.json is missing, so the settings of this run are unknown"),
        ("recipe.json", b"{", "recipe.json cannot be read"),
        ("recipe.json", b'{"recipe": {"name": 3}}', "recipe.json holds no recipe that this version reads"),
        ("recipe.json", b"[1]", "recipe.json holds no recipe that this version reads"),
        ("metrics.jsonl", None, "metrics.jsonl is missing, so there is no training log"),
        ("metrics.jsonl", b"\xff\xfe\n", "1 of 1 lines of metrics.jsonl are cut short or damaged"),
        ("metrics.jsonl", b'3\n{"loss": 1}\nnull\n', "3 of 3 lines of metrics.jsonl are cut short or damaged"),
        ("results.json", b"{}", "the measurements cannot be read"),
        ("results.json", b"\xff", "the measurements cannot be read"),
    ],
)
def test_each_damage_is_told(run, name, content, problem):
    (run / name).unlink()
    if content is not None:
        (run / name).write_bytes(content)
    record = read_record(run, "run")
    assert len(record.problems) == 1
    assert problem in record.problems[0]


def test_facts_of_other_types_count_as_unknown(run):
    whole = json.loads((run / "recipe.json").read_text())
    (run / "recipe.json").write_text(json.dumps(whole | {"run": {"steps": "many", "batch_size": 3, "images": True}}))
    record = read_record(run, "run")
    assert (record.steps, record.steps_per_epoch, record.trained) == (None, None, False)


def test_runs_get_names_that_differ(tmp_path, run):
    (tmp_path / "other" / "run").mkdir(parents=True)
    (tmp_path / "other" / "run" / "metrics.jsonl").touch()
    names = [record.name for record in read_records([run, tmp_path / "other" / "run", run])]
    assert names[1] == "other/run"
    assert len(set(names)) == 3


def test_a_run_that_does_not_exist_is_an_error():
    with pytest.raises(UsageError, match="no run at 'nowhere'"):
        read_records(["nowhere"])


def test_a_quick_probe_is_not_what_stands_for_a_run(run):
    usual = read_record(run, "run").result("linear"), read_record(run, "run").result("knn")
    common = {"metric": "top1", "dataset": "digits", "split": "test", "date": "2999-01-01T00:00:00+00:00"}
    labels = {"train_split": "train", "train_size": 1297}
    append_results(
        run,
        [
            Result(value=6.4, protocol="linear-simsiam", settings=labels | {"epochs": 2}, **common),
            Result(value=99.0, protocol="linear-cached", settings=labels | {"train_size": 65}, **common),
            Result(value=98.0, protocol="linear-cached", settings=labels, **{**common, "split": "train"}),
            Result(value=50.0, protocol="knn", settings={"k": 200, "bank_split": "train", "bank_size": 1297}, **common),
        ],
    )
    record = read_record(run, "run")
    assert (record.result("linear"), record.result("knn")) == usual
    append_results(run, [Result(value=70.0, protocol="linear-cached", settings=labels, **common)])
    assert read_record(run, "run").result("linear").value == 70.0  # of the default, the newest


def test_a_probe_by_name_is_of_the_weights_that_the_run_ended_with(run):
    at_its_end = read_record(run, "run").results
    ssl_hub.knn(run, k=7, workers=0)
    results = read_record(run, "run").results
    assert len(results) > len(at_its_end)
    assert len({r.backbone for r in results}) == len({str(r.data) for r in results}) == 1
    assert all(r.interval and r.images == 500 and r.overlap == 0 for r in results)


def test_a_run_at_a_step_has_the_reading_of_that_step(run):
    record = read_record(run, "run", at=20)
    assert record.step == 20 and "spectrum" in record.last  # of the end of the first epoch
    assert record.results == ()


def test_watching_starts_without_torch():
    code = "import sys, ssl_hub.report.watch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

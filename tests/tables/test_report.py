"""Which runs count in a cell of a table, how they are pooled, and how the table is written."""

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from ssl_hub.cli import main
from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.model.release import write_recipe
from ssl_hub.model.results import Result, append_results
from ssl_hub.tables import rendering
from ssl_hub.tables.cells import Table, top1
from ssl_hub.tables.paper import TABLES, chance_of
from ssl_hub.tables.report import paper_terms, report
from ssl_hub.tables.runs import find_runs
from ssl_hub.zoo import get_recipe

RECIPE = "directpred-r50-300ep"
IMAGES = 1_281_167


def make_run(
    folder, recipe=RECIPE, *, images=IMAGES, top1=70.0, top5=90.0, protocol="linear-byol", settings=None, **overrides
):
    """A run folder as training and probing leave it, less the weights."""
    settings = {"train_size": images} | (settings or {})
    made = get_recipe(recipe, **{"data.name": "/data/imagenet", **overrides})
    folder.mkdir(parents=True, exist_ok=True)
    write_recipe(folder, made, {"images": images})
    common = {"dataset": "imagenet", "split": "val", "protocol": protocol, "seed": made.train.seed}
    values = {"top1": top1, "top5": top5}
    append_results(folder, [Result(metric=m, value=v, settings=settings, **common) for m, v in values.items()])
    return folder


def entry(made, row="DirectPred", column="300 epochs", metric="top1"):
    return next(e for e in made.entries if (e.cell.row, e.cell.column, e.metric) == (row, column, metric))


def test_a_table_of_other_data_has_the_size_of_that_data(monkeypatch):
    cell = top1("a", "b", "directpred-digits", "linear-cached", (9.0,))
    table = Table(name="mine", title="Mine", source="table 1", repeats=1, cells=[cell])
    monkeypatch.setitem(TABLES._entries, "mine", table)
    assert paper_terms(cell)[1:] == (1297, "linear-cached", 1297, 500, 10, None) and chance_of(table) == 10.0
    assert "| a | b | top1 | 9.00 | not trained |" in rendering.markdown(report("mine"))
    elsewhere = replace(cell, overrides={"data.name": "me/photos"})
    with pytest.raises(UsageError, match="the size of me/photos is not known: add it to ssl_hub.tables.paper.SIZES"):
        paper_terms(elsewhere)


def test_without_runs_no_number_is_shown():
    made = report("imagenet")
    assert [e.measured for e in made.entries] == [None] * 16
    assert {judgement.verdict for judgement in made.judged} == {"not measured"}
    rows = list(csv.DictReader(io.StringIO(rendering.comma_separated(made))))
    assert {row["measured"] for row in rows} == {"not trained"}
    assert rows[0] | {"runs": ""} == rows[0]


def test_runs_in_the_store_and_in_folders_count_and_seeds_are_pooled(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    make_run(store.home() / RECIPE, top1=71.0)
    make_run(elsewhere / "more" / "seed-1", top1=73.0, **{"train.seed": 1, "runtime.workers": 2})
    made = report("imagenet", [elsewhere])
    found = entry(made)
    assert found.measured.mean == 72.0
    assert found.measured.std == pytest.approx(2**0.5)
    assert found.difference == pytest.approx(72.0 - 72.4)
    assert found.runs == (RECIPE, "more/seed-1")
    assert found.protocol == "linear-byol"
    assert entry(made, metric="top5").measured.mean == 90.0
    assert entry(made, row="linear").measured is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"train.epochs": 2}, "train.epochs is 2, not 300"),
        ({"images": 3000}, "trained on 3000 images, not 1281167"),
        (
            {"backbone.name": "resnet18", "train.epochs": 2},
            "backbone.name is resnet18, not resnet50; train.epochs is 2, not 300",
        ),
    ],
)
def test_another_run_never_counts_and_the_reason_is_given(tmp_path, changed, why):
    make_run(tmp_path / "r", **changed)
    made = report("imagenet", [tmp_path])
    assert entry(made).measured is None
    numbers = "linear-byol top1 70.00, linear-byol top5 90.00"
    assert made.not_counted == (f"r ({numbers}): {why}",)
    assert f"- r ({numbers}): {why}" in rendering.markdown(made)


def test_options_that_are_the_defaults_make_no_difference(tmp_path):
    make_run(tmp_path / "r", **{"predictor.form": "normalised", "target.schedule": "cosine"})
    assert entry(report("imagenet", [tmp_path])).measured.runs == 1


def test_a_probe_on_other_data_does_not_count(tmp_path):
    run = make_run(tmp_path / "transfer", settings={"train_dataset": "other"})
    other = Result(metric="top1", value=99.0, dataset="cifar10", split="test", protocol="linear-byol")
    append_results(run, [other])
    made = report("imagenet", [tmp_path])
    assert entry(made).measured is None
    assert "| not measured |  |  | 1: transfer | linear-byol |" in rendering.markdown(made)
    why = "probed on other data alone"
    assert made.not_counted == (f"transfer (linear-byol top1 70.00, linear-byol top5 90.00): {why}",)


def test_the_tables_protocol_is_preferred_and_others_are_labelled(tmp_path):
    run = make_run(tmp_path / "r", protocol="linear-cached", top1=60.0)
    found = entry(report("imagenet", [tmp_path]))
    assert (found.measured.mean, found.protocol) == (60.0, "linear-cached")
    make_run(run, protocol="linear-byol", top1=65.0, settings={"epochs": 1})
    make_run(run, protocol="knn", top1=90.0)
    shortened = {"linear-byol (epochs=1)", "linear-cached"}
    assert entry(report("imagenet", [tmp_path])).protocol in shortened
    make_run(run, protocol="linear-byol", top1=70.0, settings={"epochs": 80, "lrs": [0.4, 0.3, 0.2, 0.1, 0.05]})
    found = entry(report("imagenet", [tmp_path]))
    assert (found.measured.mean, found.protocol) == (70.0, "linear-byol")


def test_folders_of_the_same_name_are_told_apart(tmp_path):
    make_run(tmp_path / "x" / "r", top1=70.0)
    make_run(tmp_path / "y" / "r", top1=10.0, **{"train.epochs": 1})
    for folders in ([tmp_path / "x", tmp_path / "y"], [tmp_path / "y", tmp_path / "x"]):
        assert entry(report("imagenet", folders)).measured.mean == 70.0


def test_every_format(tmp_path, capsys):
    make_run(tmp_path / "a_b", top1=71.0)
    made = report("imagenet", [tmp_path])
    text = rendering.markdown(made)
    assert "| DirectPred | 300 epochs | top1 | 72.40 | 71.00 |  | -1.40 | 1: a_b | linear-byol |" in text
    assert "|  |  | 60 epochs, top1 | 60 epochs, top5 | 300 epochs, top1 |" in text
    assert "no spread is known" in text
    latex = rendering.latex(made)
    assert r"DirectPred & 300 epochs & top1 & 72.40 & 71.00 &  & -1.40 & 1: a\_b & linear-byol \\" in latex
    assert latex.count(r"\begin{tabular}") == 2
    plain = json.loads(rendering.as_json(made))
    told = {"mean": 71.0, "std": None, "runs": 1, "collapsed": 0, "spread": None, "images": None, "interval": None}
    assert plain["entries"][10]["measured"] == told
    command = ["table", "imagenet", "--format", "png"]
    assert main([*command, "--runs", str(tmp_path), "--out", str(tmp_path / "t.png")]) == 0
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    assert main(command) == 2
    assert "a png is no text to print; give --out FILE.png" in capsys.readouterr().err


def test_a_table_is_written_in_the_format_that_its_file_is_named_for(tmp_path, capsys):
    command = ["table", "claims", "--runs", str(tmp_path), "--out"]
    for name, start in {
        "t.PNG": b"\x89PNG", "t.csv": b"row,", "t.json": b"{", "t.tex": b"% ", "t.md": b"# ", "t": b"# "
    }.items():  # fmt: skip
        assert main([*command, str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes().startswith(start)
    written = {
        ending: (tmp_path / f"t.{ending}").read_text(encoding="utf-8") for ending in ("md", "csv", "json", "tex")
    }
    assert "not printed |\n" in written["md"]  # no colon before nothing
    (fast,) = [row for row in csv.DictReader(io.StringIO(written["csv"])) if "fast" in row["row"]]
    assert (fast["paper"], fast["measured"]) == ("not printed", "not trained")
    assert written["md"].count("not printed") == written["tex"].count("not printed") + 1 == 3
    of_the_paper = {claim["verdict"] for claim in json.loads(written["json"])["claims_in_paper"]}
    assert "not printed" in of_the_paper and "not measured" not in of_the_paper
    assert main([*command, str(tmp_path / "t"), "--format", "csv"]) == 0
    assert (tmp_path / "t").read_bytes().startswith(b"row,")
    assert main([*command, str(tmp_path / "none" / "t.png")]) == 2
    assert "none does not exist; create it, or choose another place for t.png" in capsys.readouterr().err


def test_command_lists_tables_and_names_the_nearest(capsys, tmp_path):
    assert main(["table"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("imagenet ")
    assert main(["table", "imagnet"]) == 2
    assert "unknown table 'imagnet'; did you mean 'imagenet'?" in capsys.readouterr().err
    assert main(["table", "imagenet", "--runs", str(tmp_path / "none")]) == 2
    assert "to look for runs in" in capsys.readouterr().err


def test_runs_that_are_not_measured_are_listed(tmp_path):
    for name in ("a", "b"):
        (make_run(tmp_path / name) / "results.json").unlink()
    (tmp_path / "b" / "config.json").touch()
    made = report("imagenet", [tmp_path])
    assert made.not_counted == ("a (not probed): not finished", "b (not probed): not probed")
    with pytest.raises(UsageError, match="no folder '.*nowhere' to look for runs in"):
        find_runs([tmp_path / "nowhere"])


def test_tables_are_listed_without_torch():
    code = "import sys; from ssl_hub.cli import main; main(['table']); sys.exit('torch' in sys.modules)"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert listed.returncode == 0 and listed.stdout.startswith("imagenet ")

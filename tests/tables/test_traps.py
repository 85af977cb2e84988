"""A table of 24 runs in which every trap is laid: what the table shows, and why each of the others is not in it."""

from dataclasses import replace

import pytest

from ssl_hub.model.release import write_recipe
from ssl_hub.model.results import Result, append_results
from ssl_hub.tables import rendering
from ssl_hub.tables.report import report
from ssl_hub.zoo import get_recipe

RECIPE = "directpred-r18-stl10-100ep"
PROTOCOL = {"train_split": "train", "train_size": 5000, "epochs": 50, "layer": "backbone"}
CLASSES = {str(label): [600, 800] for label in range(10)}


def probe(value, *, settings=None, dataset="stl10", split="test", images=8000, protocol="linear-authors-small", **more):
    told = {"metric": "top1", "value": value, "dataset": dataset, "split": split, "protocol": protocol, "seed": 0}
    told |= {"settings": PROTOCOL | (settings or {}), "images": images, "per_class": CLASSES, "overlap": 0}
    return Result(**(told | more))


def make_run(root, name, *results, recipe=RECIPE, images=105_000, data="/data/stl10", seed=0, facts=None, **overrides):
    made = get_recipe(recipe, **{"data.name": data, "train.seed": seed, **overrides})
    (root / name).mkdir()
    write_recipe(root / name, made, {"images": images} | (facts or {}))
    append_results(root / name, list(results))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")

    def run(name, *results, **options):
        make_run(root, name, *results, **options)

    # The default is the cell rho=0.3, eps=0.1, which three seeds fill: 77, 78 and 79.
    run("a0", probe(77.0, backbone="w0"), seed=0)
    run("a1", probe(78.0), probe(99.0, split="test[:100]", images=100), seed=1)
    run("a2", probe(79.0), seed=2)
    run("a-again", replace(probe(90.0), date="2020-01-01T00:00:00+00:00"), seed=2)
    run("a-copy", replace(probe(90.0, backbone="w0"), date="2020-01-01T00:00:00+00:00"), seed=3)
    run("a-split", probe(90.0, split="validation", images=5000), seed=4)
    run("a-part", probe(90.0, split="test[:100]", images=100), seed=5)
    run("a-train", probe(99.0, split="train", images=5000, overlap=5000), seed=6)
    run("a-old-train", probe(99.0, split="train", images=None, overlap=None), seed=6)
    run("a-sliced", probe(95.0, split="train[::5]", images=1000, overlap=1000), seed=7)
    run("a-labels", probe(60.0, settings={"train_size": 500, "train_split": "train@10percent.txt"}), seed=8)
    run("a-quick", probe(70.0, settings={"epochs": 2}), seed=9)
    run("a-cached", probe(80.0, protocol="linear-cached", settings={"epochs": None}), seed=10)
    run("a-cifar", probe(90.0, dataset="uoft-cs/cifar10"), data="uoft-cs/cifar10", seed=11)
    run("a-hundred", probe(50.0, per_class={str(n): [1, 80] for n in range(100)}), seed=12)
    run("a-modified", probe(90.0), seed=13, **{"predictor.eps": 0.2})
    run("a-tuned", probe(90.0), facts={"finetuned_from": "a0", "data": "stl10"}, seed=14)
    run("a-unprobed", probe(90.0, protocol="knn", settings={"k": 20}), seed=15)
    run("b0", probe(80.0, settings={"epochs": 2}), seed=0, **{"predictor.eps": 0.0})
    run("b1", probe(80.5, settings={"epochs": 2}), seed=1, **{"predictor.eps": 0.0})
    run("e0", probe(20.0, collapsed=True), seed=0, **{"predictor.eps": 0.5})
    run("e1", probe(21.0, collapsed=True), seed=1, **{"predictor.eps": 0.5})
    run("other", probe(90.0), recipe="simsiam-r50-100ep")
    run("damaged", probe(90.0), seed=16)
    (root / "damaged" / "results.json").write_text("[{")
    assert len(list(root.iterdir())) == 24
    return report("rho-eps", [root])


def test_the_table_shows_what_counts_and_nothing_else(made):
    assert {entry.cell.name: entry.runs for entry in made.entries if entry.runs} == {
        "rho=0.3, eps=0": ("b0", "b1"),
        "rho=0.3, eps=0.1": ("a0", "a1", "a2"),
        "rho=0.3, eps=0.5": ("e0", "e1"),
    }
    text = rendering.markdown(made)
    assert (
        "|  |  | eps=0 | eps=0.01 | eps=0.1 | eps=0.5 |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| rho=0.3 | paper | 76.77 ± 0.24 | 77.11 ± 0.35 | 77.86 ± 0.16 | 75.06 ± 1.10 |\n"
        "|  | here | 80.25 ± 0.35 | not trained | 78.00 ± 1.00 | 20.50 ± 0.71 (2 of 2 collapsed) |\n"
        "| rho=0.5 | paper | 76.65 ± 0.20 | 76.76 ± 0.33 | 77.56 ± 0.25 | 75.22 ± 0.81 |\n"
        "|  | here | not trained | not trained | not trained | not trained |\n"
    ) in text
    # The two-epoch probe stands in its cell under its own name, and no difference from the paper's is formed.
    assert "| 80.25 ± 0.35 | 77.07 to 83.43 |  | 2: b0, b1 | linear-authors-small (epochs=2) |" in text
    assert "| 78.00 ± 1.00 | 75.52 to 80.48 | +0.14 | 3: a0, a1, a2 | linear-authors-small |" in text
    assert r"rho=0.3 & paper & 76.77 $\pm$ 0.24 &" in rendering.latex(made)


def test_every_other_number_is_listed_with_its_reason(made):
    seen = "are among those that it was fitted to"
    stl, small = "linear-authors-small top1", "linear-authors-small (epochs=2)"
    expected = {
        f"a1 ({stl} 99.00): on a part of a split (test[:100]), where all of test was measured",
        f"a-again ({stl} 90.00): seed 2 again: a2 counts, the newest",
        f"a-copy ({stl} 90.00): the same weights as a0",
        f"a-split ({stl} 90.00): on 5,000 images (validation), not 8,000",
        f"a-part ({stl} 90.00): on a part of a split (test[:100])",
        f"a-train ({stl} 99.00): 5,000 of 5,000 images of train {seen}",
        f"a-old-train ({stl} 99.00): measured on the training split (train)",
        f"a-sliced ({stl} 95.00): 1,000 of 1,000 images of train[::5] {seen}",
        f"a-labels ({stl} 60.00): fitted to 500 labels, not 5,000",
        f"a-quick ({small} top1 70.00): another measurement: protocol linear-authors-small and {small}",
        "a-cached (linear-cached top1 80.00): another measurement: protocol linear-authors-small and linear-cached",
        f"a-cifar ({stl} 90.00): trained on uoft-cs/cifar10, not jxie/stl10",
        f"a-hundred ({stl} 50.00): of 100 classes, not 10",
        f"a-modified ({stl} 90.00): predictor.eps is 0.2, not 0.0",
        f"a-tuned ({stl} 90.00): fine-tuned on stl10",
        "a-unprobed (not probed): not probed",
        f"other ({stl} 90.00): of recipe simsiam-r50-100ep, which has no cell in this table",
    }
    readable = {line for line in made.not_counted if not line.startswith("damaged")}
    assert readable == expected
    assert any(line.startswith("damaged: ") and "not JSON" in line for line in made.not_counted), made.not_counted
    assert all(f"- {line}" in rendering.markdown(made) for line in made.not_counted)


def test_no_claim_is_decided_by_numbers_that_measure_different_things(made):
    judged = {j.claim.text: (j.verdict, j.evidence) for j in made.judged}
    assert judged["eps=0.1 does better than eps=0 (rho=0.3)"] == (
        "not decided",
        "78.00 ± 1.00 and 80.25 ± 0.35 cannot be compared: protocol linear-authors-small and "
        "linear-authors-small (epochs=2)",
    )
    assert judged["eps=0.1 does better than eps=0.5 (rho=0.3)"][0] == "holds"
    assert judged["eps=0.1 does better than eps=0.01 (rho=0.3)"][0] == "not measured"


def test_the_names_of_folders_decide_nothing(tmp_path):
    """Of two changed protocols, which stand for the cell alike, the newer is shown and the other listed."""
    for name, epochs, date in (("a", 2, "2021-01-01"), ("z", 3, "2020-01-01")):
        result = replace(probe(70.0 + epochs, settings={"epochs": epochs}), date=f"{date}T00:00:00+00:00")
        make_run(tmp_path, name, result, seed=epochs)
    first = report("rho-eps", [tmp_path])
    for old, new in (("a", "m"), ("z", "b")):
        (tmp_path / old).rename(tmp_path / new)
    again = report("rho-eps", [tmp_path])
    for made, shown, listed in ((first, "a", "z"), (again, "m", "b")):
        (entry,) = [entry for entry in made.entries if entry.runs]
        assert (entry.runs, entry.measured.mean) == ((shown,), 72.0)
        assert [line.split()[0] for line in made.not_counted] == [listed]


def test_a_copy_of_a_run_is_named_as_that(tmp_path):
    for name in ("a", "b"):
        make_run(tmp_path, name, replace(probe(70.0, backbone="w"), date="2024-01-01"))
    made = report("rho-eps", [tmp_path / "b", tmp_path / "a"])
    assert [entry.runs for entry in made.entries if entry.runs] == [("b",)]
    assert made.not_counted == ("a (linear-authors-small top1 70.00): the same weights as b",)


def test_what_tells_no_images_is_listed_beside_two_that_tell_theirs(tmp_path):
    for seed, data in enumerate(({"judged": "x"}, {"judged": "x"}, {"judged": "y"}, {})):
        make_run(tmp_path, f"r{seed}", probe(70.0 + seed, data=data), seed=seed)
    made = report("rho-eps", [tmp_path])
    assert [entry.measured.mean for entry in made.entries if entry.runs] == [70.5]
    assert {line.partition("): ")[2] for line in made.not_counted} == {
        "another measurement: other images under the same names",
        "another measurement: its images are not told, and may be others",
    }

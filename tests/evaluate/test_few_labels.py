"""A held-out part and folds of one split, against scikit-learn's on the same features; what a split does not show."""

from functools import partial

import numpy as np
import pytest
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import PredefinedSplit, StratifiedKFold, StratifiedShuffleSplit, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ssl_hub
from ssl_hub.cli import main
from ssl_hub.data.overlap import overlap
from ssl_hub.data.sources import open_source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.cross_validation import dealt
from ssl_hub.evaluate.extraction import Extraction, held_out
from ssl_hub.evaluate.features import extract
from ssl_hub.evaluate.holdout import stratified_folds, stratified_holdout
from ssl_hub.evaluate.labels import labels_of
from ssl_hub.evaluate.overlap import copies_in
from ssl_hub.evaluate.subject import open_model

PIXELS = partial(ssl_hub.knn, "pixels", "digits", image_size=16, workers=0)


@pytest.fixture(scope="module")
def features():
    subject = open_model("pixels", image_size=16)
    return extract(subject.model, open_source("digits", "train"), subject.transform)


def voting(k=20, temperature=0.07):
    """Scikit-learn's neighbours with the votes of ours."""
    return KNeighborsClassifier(k, metric="cosine", weights=lambda d: np.exp((1 - d) / temperature))


def counts(labels, part_of):
    return np.array([np.bincount(labels[part_of == part], minlength=10) for part in np.unique(part_of)])


@pytest.mark.parametrize("folds", [3, 5, 10])
def test_folds_have_scikit_learns_counts(features, folds):
    ours = counts(features.y, stratified_folds(features.y, folds, seed=0))
    theirs = np.empty(len(features), int)
    splitter = StratifiedKFold(folds, shuffle=True, random_state=0)
    for fold, (_, judged) in enumerate(splitter.split(features.x, features.y)):
        theirs[judged] = fold
    assert (np.sort(ours, axis=0) == np.sort(counts(features.y, theirs), axis=0)).all()  # of each class
    assert sorted(ours.sum(axis=1)) == sorted(counts(features.y, theirs).sum(axis=1))


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_a_held_out_part_has_scikit_learns_counts(features, share):
    held = stratified_holdout(features.y, share, seed=0)[1]
    size = len(held)
    ((_, theirs),) = StratifiedShuffleSplit(1, test_size=size, random_state=0).split(features.x, features.y)
    ours, its = (np.bincount(features.y[rows], minlength=10) for rows in (held, theirs))
    assert size == round(share * len(features)) and np.abs(ours - its).max() <= 1


def test_cross_validated_knn_is_scikit_learns(features):
    (top1, _) = PIXELS(folds=5, seed=3)
    fold_of = stratified_folds(features.y, 5, seed=3)
    guesses = cross_val_predict(voting(), features.x, features.y, cv=PredefinedSplit(fold_of))
    right = guesses == features.y
    assert top1.value == pytest.approx(100 * right.mean())
    assert top1.settings["by_fold"] == pytest.approx([100 * right[fold_of == fold].mean() for fold in range(5)])
    assert top1.per_class == {
        str(c): [int(right[features.y == c].sum()), int((features.y == c).sum())] for c in range(10)
    }
    assert (top1.images, top1.split) == (1297, "train, 5 folds")
    assert top1.settings["bank_split"] == "train, all folds but one"


def test_a_cross_validated_probe_is_scikit_learns(features):
    strength = 0.1
    overrides = {"strengths": (strength,), "max_iter": 500}
    (top1, _) = ssl_hub.linear_probe("pixels", "digits", image_size=16, workers=0, folds=3, overrides=overrides)
    fold_of, right = stratified_folds(features.y, 3, seed=0), 0
    for fold in range(3):
        kept = fold_of != fold
        known = LogisticRegression(C=1 / (strength * kept.sum()), max_iter=500)
        fitted = make_pipeline(StandardScaler(), known).fit(features.x[kept], features.y[kept])
        right += int((fitted.predict(features.x[~kept]) == features.y[~kept]).sum())
    assert abs(round(top1.value / 100 * 1297) - right) <= 2  # at the border of two classes


def test_a_held_out_part_is_judged_by_the_rest(features):
    (top1, _) = PIXELS(holdout=0.2, seed=1)
    kept, held = stratified_holdout(features.y, 0.2, seed=1)
    known = voting().fit(features.x[kept], features.y[kept])
    assert top1.value == pytest.approx(100 * known.score(features.x[held], features.y[held]))
    assert (top1.split, top1.settings["bank_split"]) == ("train, 20 % held out", "train, 80 %")
    assert top1.overlap == 0 and top1.images == len(held)
    assert top1.seed == 1 and PIXELS()[0].seed is None  # that drew the images, or nothing


def test_only_one_thing_says_what_is_judged():
    with pytest.raises(UsageError, match="got test_split test and folds 5; each says which images are judged"):
        Extraction(test_split="test", folds=5)
    with pytest.raises(UsageError, match="holdout is 1.0, expected a number from 0.001 to 0.999, or none"):
        Extraction(holdout=1.0)
    with pytest.raises(UsageError, match="folds is 1, expected a whole number of at least 2, or none; 5 is usual"):
        Extraction(folds=1)


@pytest.fixture
def sorted_folder(tmp_path):
    """Five classes of ten images that differ, as folders sort them."""
    rng = np.random.default_rng(0)
    for place, name in enumerate("abcde"):
        (tmp_path / "greys" / name).mkdir(parents=True)
        for i in range(10):
            pixels = np.clip(40 * place + rng.integers(0, 60, (8, 8, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "greys" / name / f"{i}.png")
    return str(tmp_path / "greys")


def test_a_split_of_one_class_and_classes_without_images_are_said(sorted_folder, capsys):
    knn = ["knn", "pixels", "--data", sorted_folder, "--image-size", "8", "--workers", "0", "--k", "3"]
    assert main([*knn, "--train-split", "train[:80%]", "--test-split", "train[80%:]"]) == 0
    said = capsys.readouterr().err
    assert "note: all 10 images of greys/train[80%:] are of class 'e': the number is of it alone" in said
    unseen = "no image of greys/train[:80%] is of 1 of them (e), so none of greys/train[80%:] that is can be right"
    assert f"note: {unseen}" in said
    assert main([*knn, "--holdout", "0.2"]) == 0
    found = capsys.readouterr()
    assert "note: all" not in found.err and "greys (train, 20 % held out)" in found.out
    assert main([*knn, "--test-split", "train[:20]", "--train-split", "train[20:]"]) == 0
    assert "note: of 5 classes greys/train[:20] has no image of 3 of them (c, d, e)" in capsys.readouterr().err
    assert main([*knn, "--test-split", "train[10:]", "--train-split", "train[:10]"]) == 2
    assert "all 10 images of greys/train[:10] are of class 'a', expected two or more" in capsys.readouterr().err


def test_a_held_out_part_shows_every_class(sorted_folder):
    rest, judged = held_out(open_source(sorted_folder, "train"), 0.2, seed=0)
    assert np.bincount(rest.labels).tolist() == [8] * 5 and np.bincount(judged.labels).tolist() == [2] * 5


def test_copies_are_dealt_together(sorted_folder, tmp_path):
    first = tmp_path / "greys" / "a" / "0.png"
    for place in range(6):
        (tmp_path / "greys" / "ab"[place % 2] / f"copy{place}.png").write_bytes(first.read_bytes())
    knn = partial(ssl_hub.knn, "pixels", sorted_folder, image_size=8, workers=0, k=1, folds=5)
    assert (found := knn()[0]).overlap == 0 and found.images == 56
    source = open_source(sorted_folder, "train")
    same = [place for place in range(56) if "copy" in source.id(place) or source.id(place) == "a/0.png"]
    assert copies_in(source) == [same]
    assert len({*dealt(labels_of(source), 5, 0, [same])[same]}) == 1
    for seed in range(10):
        rest, judged = held_out(source, 0.3, seed)
        assert overlap(rest, judged).images == 0 and len(rest) + len(judged) == 56
    with pytest.raises(UsageError, match="greys/train has 50 images for 56 folds, expected more; give fewer folds"):
        knn(folds=56)


def test_a_class_that_no_fold_can_get_right_is_said(sorted_folder, tmp_path, capsys):
    for place in range(1, 10):
        (tmp_path / "greys" / "c" / f"{place}.png").unlink()
    knn = ["knn", "pixels", "--data", sorted_folder, "--image-size", "8", "--workers", "0", "--folds", "5"]
    assert main(knn) == 0
    assert "note: all images of 1 of them (c) are in one fold, so none of them can be right" in capsys.readouterr().err

"""What fine-tuning can be told beside rates: smoothing, class weights, mixing, the best epoch on held-out images."""

import csv

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from datasets import Dataset, Features, Image, Sequence, Value
from PIL import Image as Pillow
from safetensors.torch import load_file
from torch.nn import functional

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.extraction import Extraction
from ssl_hub.model import backbones
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.release import read_facts
from ssl_hub.model.stages import start_small, with_classifier
from ssl_hub.stopping import Interrupted
from ssl_hub.train import finetune_epochs
from ssl_hub.train.classifier import ClassifierTrainer, Finetuning, balanced_weights
from ssl_hub.train.finetune import finetune
from ssl_hub.train.finetune_epochs import BestEpoch
from ssl_hub.train.finetuned import command_of
from ssl_hub.train.mixing import Mixing

MODEL = "timm:resnet10_tiny"
SHORT = {"epochs": 3, "batch_size": 8, "lr": 0.1}


@pytest.fixture
def photos(tmp_path):
    """Two classes of grey pictures, 24 dark and 12 bright ones to train on."""
    rng = np.random.default_rng(0)
    for split, counts in (("train", (24, 12)), ("test", (5, 5))):
        for label, grey, count in zip(("dark", "light"), (100, 150), counts, strict=True):
            folder = tmp_path / "photos" / split / label
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = (grey + rng.normal(0, 40, (16, 16, 3))).clip(0, 255).astype(np.uint8)
                Pillow.fromarray(pixels).save(folder / f"{i}.png")
    return str(tmp_path / "photos")


def trainer(images_of=(24, 12), **settings):
    torch.manual_seed(0)
    network, classifier = with_classifier(backbones.create("resnet10_tiny"), len(images_of))
    return ClassifierTrainer(
        network, classifier, Finetuning(**settings), Accelerator(cpu=True), steps_per_epoch=4,
        images_of=np.array(images_of),
    )  # fmt: skip


def test_frozen_statistics_stay_while_scale_and_shift_train():
    frozen = trainer(bn_statistics="frozen", lr=1.0)
    before = {name: tensor.clone() for name, tensor in frozen.network.state_dict().items()}
    frozen.train_mode()
    frozen.advance(iter([(torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 0, 1]))]))
    after = frozen.network.state_dict()
    statistics = [name for name in before if name.endswith(("running_mean", "running_var", "num_batches_tracked"))]
    assert statistics and all(torch.equal(before[name], after[name]) for name in statistics)
    assert not any(torch.equal(before[name], after[name]) for name in ("conv1.weight", "bn1.weight", "fc.weight"))


@pytest.mark.parametrize(
    "name",
    ["resnet10_tiny", "tf_efficientnet_lite0", "mobilenetv3_small_050", "test_vit", "test_convnext", "test_nfnet"],
)
def test_a_new_classifier_starts_undecided_whatever_the_architecture(name):
    """Where its first scores are large, so are the first gradients, and they undo what was pre-trained."""
    torch.manual_seed(0)
    network, _ = with_classifier(backbones.create(name, image_size=64), 10)
    start_small(network)
    scores = network.eval()(torch.randn(16, 3, 64, 64))
    assert network.get_classifier().weight.std() < 0.011
    assert functional.cross_entropy(scores, torch.arange(16) % 10) < 2.5  # log 10 is 2.3


def test_frozen_statistics_are_refused_where_there_are_none():
    network, classifier = with_classifier(backbones.create("test_vit", image_size=32), 2)
    with pytest.raises(UsageError, match="VisionTransformer has no batch normalisation: set bn_statistics=batch"):
        ClassifierTrainer(
            network, classifier, Finetuning(bn_statistics="frozen"), Accelerator(cpu=True), steps_per_epoch=1,
            images_of=np.ones(2, int),
        )  # fmt: skip


@pytest.mark.parametrize(
    "settings", [{}, {"label_smoothing": 0.1}, {"class_weights": "balanced", "label_smoothing": 0.2}]
)
def test_the_loss_is_the_one_that_was_asked_for(settings):
    made = trainer(**settings)
    images, labels = torch.randn(6, 3, 16, 16), torch.tensor([0, 1, 0, 0, 1, 0])
    made.train_mode()
    torch.manual_seed(1)
    loss = made._loss(images, labels, 0)
    logits = made.network(images)
    weight = torch.tensor([36 / 48, 36 / 24]) if "class_weights" in settings else torch.ones(2)
    smoothing = settings.get("label_smoothing", 0.0)
    target = functional.one_hot(labels, 2) * (1 - smoothing) + smoothing / 2
    each = -(target * weight * logits.log_softmax(1)).sum(1)
    torch.testing.assert_close(loss, each.sum() / weight[labels].sum())


def test_mixed_labels_are_smoothed_too():
    made = trainer(mixup=0.8, label_smoothing=0.2)
    images, labels = torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 0, 1])
    made.train_mode()
    loss = made._loss(images.clone(), labels, 0)
    mixed, shares = made._mixing(images.clone(), labels, 0, 0)
    target = 0.8 * shares + 0.2 / 2
    torch.testing.assert_close(loss, -(target * made.network(mixed).log_softmax(1)).sum(1).mean())


def test_balanced_weights_count_each_class_the_same():
    counts = np.array([30, 0, 10])
    found = balanced_weights(counts).numpy()
    assert found[1] == 0
    assert found[0] * 30 == pytest.approx(found[2] * 10) == pytest.approx(20)


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (0.8, 1.0)])
def test_mixing_is_drawn_again_by_a_resumed_run_and_leaves_numpys_state(mixup, cutmix):
    images, labels = torch.rand(8, 3, 16, 16), torch.arange(8) % 3
    state = np.random.get_state()[1].copy()
    one, shares = Mixing(mixup, cutmix, classes=3, seeds=(0, 0))(images.clone(), labels, 5, 0)
    np.random.random(100)
    again, same = Mixing(mixup, cutmix, classes=3, seeds=(0, 0))(images.clone(), labels, 5, 0)
    assert torch.equal(one, again) and torch.equal(shares, same)
    assert not torch.equal(one, Mixing(mixup, cutmix, classes=3, seeds=(0, 0))(images.clone(), labels, 6, 0)[0])
    assert not torch.equal(one, Mixing(mixup, cutmix, classes=3, seeds=(0, 1))(images.clone(), labels, 5, 0)[0])
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(8))
    np.random.seed(0)
    state = np.random.get_state()[1].copy()
    Mixing(mixup, cutmix, classes=3, seeds=(0, 0))(images, labels, 5, 0)
    assert (np.random.get_state()[1] == state).all()


def test_the_best_epoch_on_held_out_images_is_what_is_released(photos, tmp_path, monkeypatch):
    judged = iter([50.0, 75.0, 75.0, 60.0, 100.0])
    kept = {}

    class Told(BestEpoch):
        def note(self, epoch, top1, network):
            super().note(epoch, next(judged), network)
            kept[epoch] = {name: tensor.clone() for name, tensor in network.state_dict().items()}

    monkeypatch.setattr(finetune_epochs, "BestEpoch", Told)
    settings = {**SHORT, "epochs": 5, "holdout": 0.25, "patience": 2}
    folder, results = finetune(MODEL, photos, output=tmp_path / "r", overrides=settings, image_size=16)
    assert list(kept) == [1, 2, 3, 4], "two epochs without a better one"
    released = load_file(folder / "model.safetensors")
    assert all(torch.equal(released[name], tensor) for name, tensor in kept[2].items())
    assert results[0].settings["best_epoch"] == 2
    facts = read_facts(folder)
    assert facts["train_size"] == 27 and facts["train_split"] == "train, 75 %"
    assert [row["epoch"] for row in read_metrics(folder) if "holdout_top1" in row] == [1, 2, 3, 4]


def test_a_stopped_run_remembers_its_best_epoch_and_its_draws(photos, tmp_path, monkeypatch):
    settings = {**SHORT, "holdout": 0.25, "patience": 3, "mixup": 0.5, "cutmix": 0.5, "label_smoothing": 0.1}

    def run(folder, **options):
        return finetune(MODEL, photos, output=tmp_path / folder, overrides=settings, image_size=16, **options)[0]

    straight = run("straight")
    stops = iter([False, False, False, False, True])
    monkeypatch.setattr(finetune_epochs, "agreed", lambda accelerator, flags: [next(stops, False)])
    with pytest.raises(Interrupted):
        run("stopped")
    resumed = run("stopped", resume=True)
    for name in ("model.safetensors", "per_class.csv", "confusion.csv"):
        assert (resumed / name).read_bytes() == (straight / name).read_bytes(), name


def test_every_class_is_accounted_for(photos, tmp_path):
    folder, results = finetune(MODEL, photos, output=tmp_path / "r", overrides=SHORT, image_size=16)
    rows = list(csv.DictReader((folder / "per_class.csv").read_text().splitlines()))
    assert [row["class"] for row in rows] == ["dark", "light"]
    assert sum(int(row["right"]) for row in rows) == pytest.approx(results[0].value / 100 * 10)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"patience": 2}, "patience is 2 and holdout is 0: there is nothing to judge an epoch on"),
        ({"mixup": 0.5, "batch_size": 9}, "pair the images of a process, which are 9 at a time"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
        ({"class_weights": "some"}, "class_weights"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_written(photos, tmp_path, overrides, said):
    with pytest.raises(UsageError, match=said):
        finetune(MODEL, photos, output=tmp_path / "r", overrides={**SHORT, **overrides}, image_size=16)
    assert not (tmp_path / "r").exists()


SEVERAL, REAL = (Sequence(Value("int64")), [[0, 1], [1]]), (Value("float32"), [0.5, 2.0])


@pytest.mark.parametrize(("kind", "labels"), [SEVERAL, REAL])
def test_several_labels_and_real_numbers_are_refused_by_name(tmp_path, kind, labels):
    for split in ("train", "test"):
        rows = {"image": [Pillow.new("RGB", (16, 16))] * 2, "label": labels}
        Dataset.from_dict(rows, features=Features({"image": Image(), "label": kind})).to_parquet(
            tmp_path / "t" / f"{split}.parquet"
        )
    with pytest.raises(UsageError, match=r"its column label, .* names no class: several labels an image and real numb"):
        finetune(MODEL, str(tmp_path / "t"), output=tmp_path / "r", overrides=SHORT, image_size=16)


def test_the_command_of_a_fine_tuned_model_holds_out_what_it_held_out():
    extraction = Extraction(holdout=0.2, allow_overlap=True, seed=3)
    words = command_of("mine", "pets", 0.5, extraction, Finetuning(seed=3, holdout=0.1))
    expected = "ssl-hub finetune mine --data pets --fraction 0.5 --holdout 0.2 --allow-overlap --seed 3 holdout=0.1"
    assert words == expected.split()

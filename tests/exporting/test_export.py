"""Exported files run without this package and give what the model gives, or are not there."""

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

import ssl_hub
from ssl_hub.cli import main
from ssl_hub.data.sources import open_source
from ssl_hub.data.views import EvalTransform
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.subject import Subject, eval_transform, open_model
from ssl_hub.exporting.about import about, preprocessing
from ssl_hub.exporting.export import _name_of, export
from ssl_hub.exporting.formats import FORMATS
from ssl_hub.exporting.program import make_program
from ssl_hub.model import backbones
from ssl_hub.model.release import load_backbone
from ssl_hub.model.stages import with_classifier
from ssl_hub.train.finetuned import config_of, write_release

NEEDS = "ONNX needs the extra [export]: run `make test-export`"


def onnx_or_skip():
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason=NEEDS)


@pytest.fixture(params=["onnx", "torch-export", "torchscript"])
def kind(request):
    if request.param == "onnx":
        onnx_or_skip()
    return request.param


def reopened(path):
    """What is in a file, and a function from a uint8 or float array to its outputs, by the runtime alone."""
    if path.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path))
        about = session.get_modelmeta().custom_metadata_map["ssl_hub"]
        return json.loads(about), [o.name for o in session.get_outputs()], lambda x: session.run(None, {"images": x})
    files = {"ssl_hub": ""}
    if path.suffix == ".pt2":
        module = torch.export.load(str(path), extra_files=files).module()
    else:
        module = torch.jit.load(str(path), _extra_files=files)
    about = json.loads(files["ssl_hub"])
    return about, [o["name"] for o in about["outputs"]], lambda x: [o.numpy() for o in module(torch.from_numpy(x))]


def digits(count):
    """The first test digits as the release takes them: uint8 [N, 3, 16, 16], and normalised."""
    source, transform = open_source("digits", "test"), open_model("directpred-digits").transform
    floats = torch.stack([transform(source.image(i)) for i in range(count)])
    return ((floats * 0.5 + 0.5) * 255).round().byte().numpy(), floats


@torch.no_grad()
def test_a_file_gives_what_the_release_gives(kind, tmp_path):
    done = export("directpred-digits", tmp_path / "out", format=kind)
    about, names, run = reopened(done.path)
    assert names == ["features"]
    beside = json.loads((tmp_path / "out" / "preprocessing.json").read_text())
    assert about == {key: value for key, value in beside.items() if key not in ("parity", "file")}
    images, floats = digits(7)
    expected = ssl_hub.load("directpred-digits")(floats).numpy()
    assert np.abs(run(images)[0] - expected).max() < 1e-5
    assert beside["parity"]["relative"] < 1e-5 and beside["parity"]["batches"] == [1, 3, 5]
    assert beside["preprocessing"] == {
        "resize": 16,
        "size": 16,
        "crop_pct": 1.0,
        "interpolation": "bilinear",
        "antialias": True,
        "normalisation": "inside",
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
        "value_range": "auto",
    }
    assert beside["weights"]["licence"] == "apache-2.0" and beside["weights"]["recipe"] == "directpred-digits"


@pytest.mark.parametrize(
    ("taken", "given"),
    [
        ("uint8", torch.zeros(2, 3, 16, 16)),  # values of 0 to 1, most likely
        ("float", torch.zeros(2, 3, 16, 16, dtype=torch.uint8)),
        ("uint8", torch.zeros(2, 3, 32, 32, dtype=torch.uint8)),
        ("uint8", torch.zeros(2, 16, 16, 3, dtype=torch.uint8)),
    ],
)
def test_a_file_refuses_images_that_it_was_not_made_for(taken, given, tmp_path):
    for kind, open_file in (("torchscript", torch.jit.load), ("torch-export", lambda p: torch.export.load(p).module())):
        made = export("directpred-digits", tmp_path, format=kind, input=taken)
        with pytest.raises(Exception, match=r"images are|Guard failed|dtype mismatch|expected scalar type"):
            open_file(str(made.path))(given)


@torch.no_grad()
def test_a_head_gives_logits_and_names_its_classes(kind, tmp_path):
    to = tmp_path / f"digits{FORMATS[kind].ending}"
    done = export("directpred-digits", to, format=kind, head="digits", input="float")
    about, names, run = reopened(done.path)
    assert done.beside == tmp_path / "digits.json"
    assert (names, about["classes"]) == (["logits"], [str(digit) for digit in range(10)])
    _, floats = digits(4)
    expected = ssl_hub.load("directpred-digits", head="digits")(floats).numpy()
    assert np.abs(run(floats.numpy())[0] - expected).max() < 1e-4


@torch.no_grad()
def test_stages_are_named_by_their_strides(kind, tmp_path):
    export("directpred-digits", tmp_path, format=kind, features="stages", image_size=32)
    about, names, run = reopened(next(tmp_path.glob("model.*")))
    assert names == ["stage0_stride1", "stage1_stride1", "stage2_stride2", "stage3_stride4", "stage4_stride8"]
    assert [o["stride"] for o in about["outputs"]] == [1, 1, 2, 4, 8]
    assert [list(x.shape) for x in run(np.zeros((2, 3, 32, 32), np.uint8))[2:]] == [
        [2, 32, 16, 16],
        [2, 64, 8, 8],
        [2, 128, 4, 4],
    ]


def test_the_share_that_is_cropped_is_that_of_the_transform():
    transform = EvalTransform(224, 256, "bilinear", [0.5] * 3, [0.5] * 3)
    steps = preprocessing(transform, normalised_inside=True)
    assert (steps["resize"], steps["size"], steps["crop_pct"]) == (256, 224, 0.875)


def test_normalisation_inside_is_that_of_the_evaluation_transform_bit_for_bit():
    source = open_source("digits", "test")
    subject = open_model("timm:test_resnet", image_size=16)
    program = make_program("timm:test_resnet", head=None, features="pooled", kind="uint8", image_size=16).program
    for row in range(5):
        image = source.image(row)
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)
        assert torch.equal(program.normalised(pixels), subject.transform(image))


def test_a_file_that_differs_is_not_there_and_the_old_one_stays(tmp_path, monkeypatch):
    real = FORMATS["torchscript"]
    old = export("directpred-digits", tmp_path, format="torchscript")
    before = old.path.read_bytes(), old.beside.read_bytes()

    def off_by_a_little(path):
        run = real.open(path)
        return lambda images: [out + 3e-4 * out.abs().max() for out in run(images)]

    monkeypatch.setitem(FORMATS._entries, "torchscript", real._replace(open=off_by_a_little))
    with pytest.raises(UsageError, match=r"differs from the model by .* in 'features' on a batch of 1, 0\.0003 of its"):
        export("directpred-digits", tmp_path, format="torchscript")
    assert (old.path.read_bytes(), old.beside.read_bytes()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt", "preprocessing.json"]
    export("directpred-digits", tmp_path, format="torchscript", tolerance=1e-3)


@pytest.mark.parametrize(("there", "to"), [("photos.json", "photos.pt"), ("best.pt", "best.pt"), ("model.pt", "")])
def test_what_no_export_wrote_is_not_replaced(there, to, tmp_path):
    (tmp_path / there).write_text('{"annotations": []}')
    with pytest.raises(UsageError, match=f"{there}: there already, and no earlier export; choose another name"):
        export("directpred-digits", tmp_path / to, format="torchscript")
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == '{"annotations": []}'


class Odd(nn.Module):
    """A model with what breaks exporters: the size of the batch that is traced stays in the program, or decides."""

    def __init__(self, kind):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.kind = kind
        self.pretrained_cfg = {"input_size": (3, 8, 8), "crop_pct": 1.0, "interpolation": "bilinear"}
        self.pretrained_cfg |= {"mean": (0.5,) * 3, "std": (0.5,) * 3}

    def forward(self, x):
        if self.kind == "fixed batch":
            return (x * self.weight[:, None, None]).sum((2, 3))[: int(x.shape[0])]
        if self.kind == "not finite":
            return (x * self.weight[:, None, None]).sum((2, 3)) / 0
        return x.mean((2, 3)) * (1 if x.shape[0] > 2 else -1)


@pytest.mark.parametrize(
    ("odd", "kind", "message"),
    [
        ("fixed batch", "torchscript", r"'features' of shape \[2, 3\] for a batch of 3, and the model \[3, 3\]"),
        ("not finite", "torchscript", "the model itself gives 'features' with NaN or infinity"),
        ("batch decides", "torch-export", r"cannot be written as torch-export \(.*\); try onnx or torchscript"),
        ("batch decides", "torchscript", "differs from the model by"),
    ],
)
def test_what_tracing_gets_wrong_is_found(odd, kind, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        export(Odd(odd), tmp_path / "out", format=kind)
    assert not (tmp_path / "out").exists()


class Fused(Odd):
    """Attention of five dimensions, fused as timm's layers have it; torch's exporter to ONNX takes four."""

    fused_attn = True

    def forward(self, x):
        q = (x * self.weight[:, None, None]).reshape(x.shape[0], 3, 1, 8, 8)
        if self.fused_attn:
            return nn.functional.scaled_dot_product_attention(q, q, q).flatten(1)
        return ((q @ q.transpose(-2, -1) / 8**0.5).softmax(-1) @ q).flatten(1)


def test_attention_of_five_dimensions_is_written(kind, tmp_path):
    model = Fused("fused")
    assert export(model, tmp_path, format=kind, input="float").about["parity"]["relative"] < 1e-5
    assert model.fused_attn


def test_a_model_in_memory_stays_as_it_is(tmp_path):
    model = backbones.create("test_resnet").train()
    model.layer1.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    export(model, tmp_path, format="torchscript", image_size=64)
    assert model.training and not model.layer1.training and all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@torch.no_grad()
def test_a_fine_tuned_classifier_that_is_more_than_a_linear_layer(tmp_path):
    data = open_source("digits", "train")
    network, _ = with_classifier(backbones.create("test_convnext"), 10)
    subject = Subject(network, eval_transform(backbones.create("test_convnext")), None, None)
    subject = subject._replace(model=backbones.create("test_convnext"))
    write_release(tmp_path, network.eval(), config_of(subject, "timm:test_convnext", data, ["ssl-hub"]), data)
    (tmp_path / "heads/digits.safetensors").unlink(missing_ok=True)  # as of families whose classifier is more
    (tmp_path / "hashes.json").unlink()
    done = export(tmp_path, tmp_path / "out", format="torchscript", head="digits", input="float")
    images = torch.randn(2, 3, *(done.about["preprocessing"]["size"],) * 2)
    expected = load_backbone(tmp_path, num_classes=None)(images)
    assert torch.allclose(torch.jit.load(str(done.path))(images)[0], expected, atol=1e-5)
    loaded = ssl_hub.load(tmp_path, head="digits")
    assert torch.equal(loaded(images), expected) and loaded.label_names == list("0123456789")
    with pytest.raises(UsageError, match="no head for 'others'"):
        ssl_hub.load(tmp_path, head="others")


def test_the_command_says_what_it_wrote(tmp_path, capsys):
    assert main(["export", "directpred-digits", "--to", f"{tmp_path}/d.pt", "--format", "torchscript"]) == 0
    out = capsys.readouterr().out
    assert f"{tmp_path}/d.pt: uint8 [batch, 3, 16, 16] -> features [batch, 128]\nchecked in torch " in out
    arguments = ["export", "timm:test_vit", "--to", str(tmp_path), "--format", "torchscript", "--features", "tokens"]
    assert main([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [output["name"] for output in said["outputs"]] == ["tokens", "prefix_tokens"]
    assert said["weights"]["licence"] == "not stated" and said["weights"]["source"] == "random"


@pytest.mark.parametrize(
    ("name", "origin", "told"),
    [
        ("timm:test_resnet.r160_in1k", {"kind": "timm", "name": "test_resnet.r160_in1k", "licence": "cc-by-nc-4.0"},
         {"source": "timm/test_resnet.r160_in1k", "tag": "r160_in1k", "licence": "cc-by-nc-4.0"}),
        ("init:mine", {"kind": "file", "name": "theirs.pt", "licence": "unknown", "lineage": []},
         {"source": "theirs.pt", "licence": "not stated"}),
        ("timm:test_resnet", None, {"source": "random", "licence": "not stated"}),
    ],
)  # fmt: skip
def test_where_weights_are_from_is_what_was_opened_and_not_how_it_is_spelt(name, origin, told):
    made = make_program("timm:test_resnet", head=None, features="pooled", kind="uint8", image_size=None)
    says = about(name, made._replace(subject=made.subject._replace(origin=origin)))["weights"]
    assert {key: says.get(key) for key in told} == told
    assert ("lineage" in says) == (name == "init:mine")


@pytest.mark.parametrize(
    ("given", "name"), [("{}/a run", "a run"), ("init:{}/a run", "init:a run"), ("~/a run", "a run")]
)
def test_a_file_does_not_say_where_its_model_was(given, name, tmp_path, monkeypatch):
    (tmp_path / "a run").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _name_of(given.format(tmp_path), Subject(None, None, None, None)) == name
    at_step = Subject(None, None, None, None, step=5, origin={"name": "a run@5"})
    assert _name_of(f"{tmp_path}/a run@5", at_step) == "a run@5"


def test_without_its_packages_onnx_says_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UsageError, match=r"ONNX needs onnx, .* pip install 'ssl_hub\[export\]'; torch-export and"):
        export("directpred-digits", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "onxn"}, "unknown export format 'onxn'; did you mean 'onnx'"),
        ({"to": "a.pt2"}, r"name it a\.pt$"),
        ({"to": "gone/a.pt"}, "the folder .*gone does not exist"),
        ({"features": "mpa"}, "features is 'mpa', expected one of pooled, map"),
        ({"input": "int8"}, "input is 'int8', expected 'uint8'"),
        ({"head": "digits", "features": "map"}, "give one of them"),
        ({"head": "mnist"}, "no head for 'mnist' in .*; there: digits"),
        ({"model": "timm:test_vit", "head": "imagenet"}, "head='imagenet' is one that a release carries"),
        ({"model": "pixels"}, "'pixels' has no network"),
        ({"tolerance": -1.0}, "tolerance is -1.0, expected a number from 0 to 1"),
        ({"features": "tokens"}, "SmallImageResNet has no features of the kind 'tokens'"),
    ],
)
def test_bad_input_says_what_to_do(options, message, tmp_path):
    usual = {"model": "directpred-digits", "format": "torchscript"}
    given = {**usual, **options, "to": tmp_path / options.get("to", "")}
    with pytest.raises(UsageError, match=message):
        export(**given)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "to").symlink_to("nowhere")
    with pytest.raises(UsageError, match=r"cannot make the folder .*to \(File exists\); choose another place"):
        export("directpred-digits", tmp_path / "to", format="torchscript")

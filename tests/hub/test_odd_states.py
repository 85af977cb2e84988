"""Names, folders and caches in odd states: `where`, `load` and `push` say the same, in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from ssl_hub.cli import main
from ssl_hub.errors import UsageError
from ssl_hub.hub import store, weights
from ssl_hub.hub.inventory import list_releases, remove
from ssl_hub.hub.publish import push
from ssl_hub.hub.verify import verify
from ssl_hub.model.files import CONFIG, HASHES, MODEL, RECIPE, record, seal
from ssl_hub.model.lineage import public_name, public_words, published
from ssl_hub.model.release import read_facts, read_recipe, read_tensors, write_recipe, write_tensors
from ssl_hub.zoo import as_modified, get_recipe
from tests.hub.hub_server import FOREVER
from tests.hub.releases import contents, flip, measured

NAME = "ann/digits"
HUB = f"hf-hub:{NAME}"
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload:DeprecationWarning")


@pytest.fixture
def snapshot(hub, run):
    """A release in the Hub's cache."""
    hub.add(NAME, contents(run))
    return store.resolve(HUB)


# Names


@pytest.mark.parametrize("name", ["my run", "naïve-模型", "a@b", "a:b"])
def test_what_is_listed_is_found_by_its_name_verified_and_removed(run, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run, store.home() / name)
    assert name in [holding.name for holding in list_releases()]
    assert [place.found for place in store.where(name)][:2] == [False, True]
    assert verify(name).hashed and push(name, "./shelf/with space").new
    shutil.move(store.home() / name, name)
    store.load(name)  # a folder here
    shutil.move(name, store.home() / name)
    assert remove(name).name == name


@pytest.mark.parametrize("name", ["x" * 300, "./" + "x" * 300, "/tmp/" + "y" * 300])
def test_names_that_no_disk_takes_are_one_line(run, name):
    assert not any(place.found for place in store.where(name))
    with pytest.raises(UsageError, match=r"no release .* is here|cannot be looked at|no folder"):
        store.load(name)
    with pytest.raises(UsageError, match="no run at"):
        store.run_folder(name)


@pytest.mark.parametrize("name", [".", "/", "@latest", "nowhere@2"])
def test_a_name_that_is_no_run_is_said_whatever_its_letters(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no run at"):
        store.run_folder(name)


def test_a_mistyped_name_inside_a_run_is_not_taken_for_the_run(run, monkeypatch):
    monkeypatch.chdir(run)
    with pytest.raises(UsageError, match=r"no run at 'typo', and none of that name in the store [^;]*$"):
        store.run_folder("typo")


def test_a_folder_that_may_not_be_looked_at_is_said(monkeypatch):
    def refused(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refused)
    assert store.where("./mine")[0].state == "cannot be looked at (Permission denied)"
    with pytest.raises(UsageError, match=r"'./mine' cannot be looked at \(Permission denied\)"):
        store.load("./mine")


def closed(monkeypatch, folder: Path) -> None:
    """What is in the folder may not be looked at nor read, as it would be to another user."""
    for name in ("is_file", "exists", "open", "read_bytes"):
        usual = getattr(Path, name)

        def refused(self, *arguments, usual=usual, **options):
            if folder in self.parents:
                raise PermissionError(13, "Permission denied", str(self))
            return usual(self, *arguments, **options)

        monkeypatch.setattr(Path, name, refused)


def test_one_folder_of_the_store_that_may_not_be_looked_at_hides_no_other(run, monkeypatch):
    for name in ("hidden", "mine"):
        shutil.copytree(run, store.home() / name)
    closed(monkeypatch, store.home() / "hidden")
    problems = {holding.name: holding.problem for holding in list_releases()}
    assert "Permission denied" in problems["hidden"] and problems["mine"] == "" and main(["list"]) == 0
    with pytest.raises(UsageError, match=r"no release .*hidden cannot be looked at \(Permission denied\)"):
        store.load("hidden")


def test_a_file_that_may_not_be_read_and_no_place_for_temporary_ones_are_one_line(hub, run, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.TemporaryDirectory", lambda: (_ for _ in ()).throw(PermissionError(13, "Denied")))
        with pytest.raises(UsageError, match=r"cannot make a temporary folder \(Denied\); set TMPDIR"):
            push(run, NAME)
    usual = Path.open

    def denied(self, *arguments, **options):
        return usual(self if self.name != MODEL else Path("/dev/null/x"), *arguments, **options)

    monkeypatch.setattr(Path, "open", denied)
    for action in (store.load, verify):
        with pytest.raises(UsageError, match=r"cannot read .*model\.safetensors: Not a directory"):
            action(run)


@pytest.mark.parametrize("name", [MODEL, HASHES, "results.json", "heads/digits.json"])
def test_where_and_load_agree_on_links(run, tmp_path, name):
    (run / name).rename(tmp_path / "elsewhere")
    (run / name).symlink_to(tmp_path / "elsewhere")
    assert store.where(run)[0].damaged and "is a symbolic link" in store.where(run)[0].state
    with pytest.raises(UsageError, match="is a symbolic link"):
        store.load(run)


def test_json_that_would_take_far_more_memory_than_bytes_is_refused(run):
    (run / CONFIG).write_bytes(b"[" + b"{}," * 600_000 + b"{}]")
    with pytest.raises(UsageError, match=r"config\.json has 600002 lists and objects, expected at most 500000"):
        store.load(run, check_hashes=False)


def test_where_says_all_that_the_error_leaves_out(capsys):
    assert main(["where", "byol-digits"]) == 2
    said = capsys.readouterr().err
    assert "train it with" in said and "import a public checkpoint" in said and "ssl-hub list" in said


# Targets of a push


@pytest.mark.parametrize("target", ["./" + "z" * 300, "/dev/null/x", "./a\0b", ".", "/"])
def test_folders_that_cannot_be_written_are_one_line(run, tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="choose another folder|expected the path of a folder"):
        push(run, target)


def test_a_target_that_is_a_link_stays_one_and_so_do_links_in_it(run, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert push(run, str(tmp_path / "link")).new
    (tmp_path / "real" / "nowhere").symlink_to("/nowhere")
    measured(run)
    assert push(run, str(tmp_path / "link")).new and not push(run, str(tmp_path / "link")).new
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "nowhere").is_symlink()
    with pytest.raises(UsageError, match="is the run itself, or in it"):
        push(run, str(run / "inside"))


def test_a_release_of_the_hub_is_mirrored_whole(snapshot, run, tmp_path):
    assert push(HUB, str(tmp_path / "mirror")).new
    assert verify(tmp_path / "mirror").files.keys() == verify(run).files.keys()


# The Hub's cache


@pytest.mark.parametrize("name", [MODEL, CONFIG, RECIPE, HASHES])
@pytest.mark.parametrize("tree", [True, False])
def test_half_a_download_is_half_for_where_and_for_load(snapshot, monkeypatch, name, tree):
    (snapshot / name).unlink()
    if not tree:  # as older clients leave it
        shutil.rmtree(snapshot.parents[1] / "trees", ignore_errors=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert not store.where(HUB)[0].found
    with pytest.raises(UsageError, match="HF_HUB_OFFLINE is set"):
        store.load(HUB)
    if name != HASHES:
        with pytest.raises(UsageError, match=f"{name}(,| is missing, and) (which )?hashes.json lists"):
            store.load(snapshot)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    store.load(HUB)


@pytest.mark.parametrize("down", ["offline", "status", "cut"])
def test_a_damaged_cache_is_named_while_the_hub_is_not_there(hub, snapshot, waits, monkeypatch, down):
    flip((snapshot / MODEL).resolve())
    with pytest.raises(UsageError, match=r"model\.safetensors is not the file that hashes\.json lists"):
        store.load(snapshot)  # by its path
    if down == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    else:
        hub.fail(".*", down, times=FOREVER)
    with pytest.raises(
        UsageError, match=f"{NAME}: {MODEL} in the cache is not as hashes.json says .*, and cannot fetch"
    ):
        store.load(HUB)
    hub.faults.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    store.load(HUB)


def test_a_refusal_to_read_speaks_of_reading(hub, waits):
    hub.fail(".*", code=403, times=FOREVER)
    with pytest.raises(UsageError, match="the token may not do that; has its user access"):
        store.load(HUB)


def test_weights_of_a_bare_name_are_recorded_as_the_hubs_with_their_commit(snapshot, monkeypatch):
    monkeypatch.setenv("SSL_HUB_ORG", "ann")
    for name in ("digits", HUB, f"{HUB}@main"):
        assert weights.pretrained(name).origin["name"] == f"{HUB}@{snapshot.name}"
        assert weights.pretrained(name).kind == "hub"


# What is published of a disk


def test_what_is_published_names_no_disk_and_the_run_keeps_what_it_needs(hub, run, tmp_path):
    (tmp_path / "home" / "photos").mkdir(parents=True)
    disk = f"{tmp_path}/home"
    settings = {"data.name": f"{disk}/photos", "data.train_split": f"train@{disk}/half.txt"}
    recipe = as_modified(get_recipe("directpred-digits", **settings, **{"backbone.init": f"{disk}/w.pt::lightly"}))
    command = f"{disk}/bin/ssl-hub train directpred-digits --data {disk}/photos --output={disk}/run x.y={disk}/z"
    facts = {
        "command": command, "asked": {"model": f"{disk}/model", "data": "uoft-cs/cifar10"},
        "note": ["a/b", f"{disk}/n"], "initialised_from": {"name": f"{disk}/w.pt"},
        "learning_rate": {"factors": "0.03 * 64/256"},
    }  # fmt: skip
    write_recipe(run, recipe, {**read_facts(run), **facts})
    record(run, RECIPE)
    for target in (NAME, str(tmp_path / "shelf")):
        push(run, target)
        assert not push(run, target).new
    assert read_recipe(run).data.name == f"{disk}/photos" and read_facts(run)["command"] == command
    for files in (contents(tmp_path / "shelf"), hub.main(NAME)):
        assert not [name for name, data in files.items() if disk.encode() in data]
        told = json.loads(files[RECIPE])
        assert told["recipe"]["data"]["name"] == "photos" and told["recipe"]["data"]["train_split"] == "train@half.txt"
        assert told["recipe"]["backbone"]["init"] == "w.pt::lightly"
        assert told["run"]["command"] == "ssl-hub train directpred-digits --data photos --output=run x.y=z"
        assert told["run"]["asked"] == {"model": "model", "data": "uoft-cs/cifar10"}
        assert told["run"]["learning_rate"]["factors"] == "0.03 * 64/256" and told["run"]["note"] == ["a/b", "n"]
    assert verify(tmp_path / "shelf").hashed and verify(HUB).hashed
    shelf = json.loads((tmp_path / "shelf" / RECIPE).read_text())
    assert published(shelf) == shelf  # and so pushed on as it is


def test_a_folder_here_is_no_dataset_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert public_name("data/photos") == "data/photos"  # it may be one
    (tmp_path / "data" / "photos").mkdir(parents=True)
    assert (
        public_name("data/photos") == "photos" and public_name("data/photos::plain::target") == "photos::plain::target"
    )
    words = ["ssl-hub", "finetune", "--data", "data/photos", "--train-split", "train@/home/ann/1.txt", "a=/b/c"]
    assert public_words(words) == ["ssl-hub", "finetune", "--data", "photos", "--train-split", "train@1.txt", "a=c"]


TYPES = [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16, torch.float64]


@pytest.mark.parametrize("kind", TYPES)
def test_weights_of_every_type_of_float_load_as_the_numbers_that_they_are(run, kind):
    stored = {
        name: tensor.to(kind) if tensor.is_floating_point() else tensor
        for name, tensor in read_tensors(run / MODEL).items()
    }
    write_tensors(run / MODEL, stored)
    seal(run)
    assert torch.equal(store.load(run).state_dict()["conv1.weight"], stored["conv1.weight"].float())
    verify(run)
    if kind != torch.float8_e4m3fn:  # which has no infinity
        stored["bn1.weight"] = torch.full(stored["bn1.weight"].shape, float("inf")).to(kind)
        write_tensors(run / MODEL, stored)
        seal(run)
        with pytest.raises(UsageError, match=r"1 tensors hold NaN or infinity \(bn1\.weight\)"):
            store.load(run)


def test_floats_of_half_a_byte_are_named(run):
    header = b'{"x":{"dtype":"F4","shape":[8],"data_offsets":[0,4]}}'  # a type of safetensors from 0.6 on
    (run / MODEL).write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(UsageError, match=r"model\.safetensors: 'x' holds float4|not a readable safetensors file"):
        store.load(run, check_hashes=False)

"""Publishing: what is refused before anything is sent, what arrives, and what every fault on the way comes to."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import yaml

from ssl_hub.errors import UsageError
from ssl_hub.hub.publish import push
from ssl_hub.hub.store import load
from ssl_hub.model.files import CONFIG, HASHES, METHOD, MODEL, RECIPE, RESULTS_FILE, record, seal
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.release import read_tensors, write_tensors
from tests.hub.hub_server import FOREVER, TOKEN
from tests.hub.releases import features, flip, make_release, measured

RELEASE = {CONFIG, RECIPE, MODEL, METHOD, RESULTS_FILE, HASHES, "heads/digits.safetensors", "heads/digits.json"}
NAME = "ann/digits"

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload:DeprecationWarning")  # the client's own


def published(hub, name=NAME):
    return hub.main(name).keys() - {".gitattributes"}


def pets():
    return ProbeHead(torch.randn(2, 128), torch.randn(2), ("a", "b"), "pets")


def test_a_run_becomes_one_commit_that_loads_and_a_second_push_none(hub, run):
    first = push(run, NAME)
    assert first.new and published(hub) == RELEASE | {"README.md"} == first.files.keys()
    assert hub.commits(NAME) == 2  # the repository's own first one, and this
    assert torch.equal(features(f"hf-hub:{NAME}@{first.commit}"), features(run))
    again = push(run, NAME)
    assert (again.commit, again.new) == (first.commit, False)
    assert hub.commits(NAME) == 2


def test_a_changed_run_replaces_its_own_files_and_leaves_others(hub, run):
    pets().save(run)
    push(run, NAME)
    hub.repos[NAME].commit("main", {**hub.main(NAME), "LICENSE": b"mine", "extra/heads.json": b"{}"})
    (run / "heads" / "pets.safetensors").unlink()
    (run / "heads" / "pets.json").unlink()
    seal(run)
    assert push(run, NAME).new
    assert published(hub) == RELEASE | {"README.md", "LICENSE", "extra/heads.json"}


def test_the_owners_words_survive_and_an_unchanged_run_makes_no_commit(hub, run):
    push(run, NAME)
    theirs = hub.main(NAME)["README.md"].decode()
    theirs = theirs.replace("## Limits\n", "## Limits\n\nNot for cats.\n").replace("tags:\n", "tags:\n- mine\n")
    theirs = theirs.replace("## Citation", "## My words\n\nHello.\n\n## Citation")
    theirs = re.sub(r"(?s)## Use it.*?(?=## My words)", "", theirs)
    hub.repos[NAME].commit("main", {**hub.main(NAME), "README.md": theirs.encode()})
    commits = hub.commits(NAME)
    assert not push(run, NAME).new and hub.commits(NAME) == commits
    measured(run)
    for _ in range(2):  # the second push sees what the first one merged
        push(run, NAME)
        card = hub.main(NAME)["README.md"].decode()
        assert "Not for cats." in card and "## My words\n\nHello." in card and "## Use it" not in card
        assert "12.50" in card and "value: 12.5" in card and "- mine" in card
    assert hub.commits(NAME) == commits + 1
    (metadata,) = re.findall(r"(?s)\A---\n(.*?)\n---\n", card)
    assert "mine" in yaml.safe_load(metadata)["tags"]


def test_pictures_of_the_same_release_are_left_as_they_are(hub, run):
    push(run, NAME)
    hub.repos[NAME].commit("main", {**hub.main(NAME), "training.png": b"drawn by another version"})
    assert not push(run, NAME).new
    assert hub.main(NAME)["training.png"] == b"drawn by another version"


def test_a_licence_is_stated_by_the_release_its_card_and_every_later_push(hub, run):
    assert "license: unknown" in push(run, NAME, dry_run=True).card
    plan = push(run, NAME, dry_run=True, licence="CC-BY-4.0")
    assert "license: cc-by-4.0" in plan.card and "licence" not in json.loads((run / CONFIG).read_text())["ssl_hub"]
    push(run, NAME, licence="CC-BY-4.0")
    assert json.loads(hub.main(NAME)[CONFIG])["ssl_hub"]["licence"] == "CC-BY-4.0"
    assert not push(run, NAME).new  # the run says it too
    assert "Weights: CC-BY-4.0." in hub.main(NAME)["README.md"].decode()
    load(f"hf-hub:{NAME}")
    with pytest.raises(UsageError, match="licence is ' ', expected its name"):
        push(run, NAME, licence=" ")


def test_a_folder_gets_the_same_release_and_keeps_what_is_not_ours(hub, run, tmp_path):
    target = tmp_path / "shared" / "digits"
    assert push(run, str(target)).new and hub.log == []
    assert {str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()} == RELEASE | {"README.md"}
    assert torch.equal(features(target), features(run))
    assert not push(run, str(target)).new
    (target / "LICENSE").write_text("mine")
    (target / "README.md").write_text((target / "README.md").read_text().replace("## Limits", "## Mine\n\n## Limits"))
    measured(run)
    assert push(run, str(target)).new
    card = (target / "README.md").read_text()
    assert "## Mine" in card and "12.50" in card and (target / "LICENSE").read_text() == "mine"
    assert [path.name for path in target.parent.iterdir()] == ["digits"]
    target.rename(target.with_name(".digits.replaced"))  # as a kill between two renames leaves it
    assert not push(run, str(target)).new
    for bad, said in ((run, "is the run itself"), (tmp_path, "holds something that is no release")):
        with pytest.raises(UsageError, match=said):
            push(run, str(bad))
    with pytest.raises(UsageError, match="which has no revisions"):
        push(run, str(target), revision="v1")


def test_private_branch_and_tags_of_repositories(hub, run):
    made = push(run, NAME, private=True, revision="v1")
    assert hub.repos[NAME].private and hub.repos[NAME].branches["v1"] == made.commit
    assert published(hub) == set()
    hub.add("ann/public", {})
    with pytest.raises(UsageError, match="ann/public exists and is public; make it private in its settings"):
        push(run, "ann/public", private=True)


def test_offline_nothing_is_sent(hub, run, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match="cannot publish to ann/digits: the Hub may not be asked"):
        push(run, NAME)
    assert hub.log == [] and push(run, NAME, dry_run=True).card


def test_only_the_main_process_publishes(hub, run, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert push(run, NAME).commit is None and hub.log == []
    monkeypatch.setenv("RANK", "0")
    assert push(run, NAME).new
    assert (hub.log.count("POST /api/repos/create"), hub.commits(NAME)) == (1, 2)


def test_pictures_come_along_where_the_run_logged_what_they_need(hub, run):
    spectrum = {"correlation": [1.0, 0.1], "predictor": [1.0, 0.3], "alignment": [0.9, 0.8]}
    logged = {"loss": 0.5, "feature_std": 0.1, "healthy_std": 0.12, "asymmetry": 0.0, "spectrum": spectrum}
    lines = [json.dumps({"step": step, "epoch": step, **logged}) for step in (1, 2, 3)]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    first = push(run, NAME)
    assert published(hub) == RELEASE | {"README.md", "training.png", "spectrum.png"}
    assert "![training](training.png)" in first.card
    assert not push(run, NAME).new  # the same log gives the same pictures


# Refused before anything is sent


def damaged(run, damage):
    if damage in ("unfinished", "lost"):
        (run / CONFIG).unlink()
        if damage == "unfinished":
            (run / HASHES).unlink()
    elif damage == "nan":
        tensors = read_tensors(run / METHOD)
        tensors["predictor.weight"][0, 0] = float("nan")
        write_tensors(run / METHOD, tensors)
        record(run, METHOD)
    elif damage == "bit":
        flip(run / MODEL)
    elif damage == "nan result":
        (run / RESULTS_FILE).write_text((run / RESULTS_FILE).read_text().replace("90.8", "NaN"))
        record(run, RESULTS_FILE)
    elif damage == "missing":
        (run / METHOD).unlink()
    elif damage == "link":
        (run / RECIPE).rename(run.parent / RECIPE)
        (run / RECIPE).symlink_to(run.parent / RECIPE)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("unfinished", r"a run that is not finished: it has no config\.json yet"),
        ("lost", r"a release whose config\.json, which hashes\.json lists, is missing"),
        ("nan", r"method\.safetensors: 1 tensors hold NaN or infinity \(predictor\.weight\)"),
        ("bit", r"model\.safetensors is not the file that hashes\.json lists"),
        ("nan result", "top1 of linear-cached on digits/test is nan, expected a finite number"),
        ("missing", r"method\.safetensors is missing, and hashes\.json lists it"),
        ("link", r"recipe\.json is a symbolic link"),
    ],
)
def test_what_should_not_be_published_is_refused_with_nothing_sent(hub, run, damage, message):
    damaged(run, damage)
    with pytest.raises(UsageError, match=message):
        push(run, NAME)
    assert hub.log == []


def test_collapsed_features_are_published_on_request_alone_and_the_card_says_so(hub, tmp_path):
    make_release(tmp_path, collapsed=True)
    with pytest.raises(UsageError, match="had collapsed when its training ended.*--allow-collapsed"):
        push(tmp_path, NAME)
    assert hub.log == []
    assert "**Collapsed.**" in push(tmp_path, NAME, allow_collapsed=True).card


@pytest.mark.parametrize("name", ["digits", "a/b/c", "ann/di gits", "ann/..", "https://x/y", "ann/x@v", None])
def test_a_name_that_is_none_is_refused(hub, run, name):
    with pytest.raises(UsageError, match="expected OWNER/NAME"):
        push(run, name)
    assert hub.log == []


def test_an_empty_revision_is_no_branch(hub, run):
    with pytest.raises(UsageError, match="revision is '', expected the name of a branch"):
        push(run, NAME, revision="")
    assert hub.log == []


def test_a_log_that_is_none_is_named(hub, run):
    (run / "metrics.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"metrics\.jsonl is no training log"):
        push(run, NAME)
    assert hub.log == []


def test_a_name_nowhere_is_an_error():
    with pytest.raises(UsageError, match="no finished run or release 'yours' on this machine"):
        push("yours", NAME)


# Faults on the way

STAGES = {
    "look": "GET /api/models/ann/digits$",
    "create": "POST /api/repos/create",
    "head": "GET /api/models/ann/digits/revision/main",
    "list": "GET /api/models/ann/digits/tree",
    "validate": "POST /api/validate-yaml",
    "preupload": "POST .*/preupload/",
    "batch": "POST .*/objects/batch",
    "upload": "PUT /lfs/",
    "verify": "POST /lfs/.*/verify",
    "commit": "POST .*/commit/",
    "load back": "HEAD .*/model.safetensors",
    "body": "GET .*/resolve/.*/model.safetensors",
}


@pytest.mark.parametrize("kind", ["status", "cut", "cut_after"])
@pytest.mark.parametrize("stage", STAGES)
def test_one_fault_anywhere_is_got_over(hub, run, waits, stage, kind):
    fault = hub.fail(STAGES[stage], kind)
    done = push(run, NAME)
    assert fault.hits == 1 and hub.main(NAME) is hub.repos[NAME].commits[done.commit]
    assert published(hub) == RELEASE | {"README.md"} and hub.commits(NAME) == 2
    assert not push(run, NAME).new


@pytest.mark.parametrize("stage", ["create", "head", "preupload", "upload", "commit"])
def test_a_hub_that_asks_to_wait_is_waited_for(hub, run, waits, stage):
    hub.fail(STAGES[stage], code=429, headers={"Retry-After": "7"})
    push(run, NAME)
    assert max(waits) in (7, 8)  # the client itself waits a second more than asked


@pytest.mark.parametrize("stage", ["create", "preupload", "upload", "commit"])
@pytest.mark.parametrize("kind", ["status", "cut"])
def test_a_fault_for_ever_ends_in_one_message_and_main_as_it_was(hub, run, waits, stage, kind):
    push(run, NAME)
    before = dict(hub.main(NAME))
    hub.repos.pop(NAME) if stage == "create" else None
    pets().save(run)
    hub.fail(STAGES[stage], kind, times=FOREVER, code=503)
    message = "the Hub answers 503" if kind == "status" else "the connection to http://.* fails"
    with pytest.raises(UsageError, match=f"cannot publish to ann/digits after 4 attempts: {message}"):
        push(run, NAME)
    assert stage == "create" or hub.main(NAME) == before
    hub.faults.clear()
    assert push(run, NAME).new


@pytest.mark.parametrize("wait", ["3600", "soon"])
def test_no_wait_is_endless(hub, run, waits, wait):
    hub.fail(STAGES["create"], code=429, headers={"Retry-After": wait}, times=FOREVER)
    with pytest.raises(UsageError, match="the Hub answers 429"):
        push(run, NAME)
    assert sum(waits) < 60


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (400, "the Hub answers 400 .*no"),
        (401, "the Hub does not accept the token .*hf auth login"),
        (403, "the token may not do that .*the role 'write'"),
        (404, "there is no such thing"),
    ],
)
def test_a_refusal_is_final_and_says_what_to_do(hub, run, waits, code, message):
    fault = hub.fail(STAGES["commit"], code=code, times=FOREVER, message=f"no {TOKEN}")
    with pytest.raises(UsageError, match=message) as raised:
        push(run, NAME)
    assert fault.hits == 1 and TOKEN not in str(raised.value) and published(hub) == set()


def test_a_lost_race_looks_again_and_starts_from_the_other_commit(hub, run, waits):
    push(run, NAME)
    hub.repos[NAME].commit("main", {**hub.main(NAME), "LICENSE": b"theirs"})
    hub.fail(STAGES["commit"], code=412)
    pets().save(run)
    assert push(run, NAME).new
    assert {"LICENSE", "heads/pets.json"} <= published(hub)


def test_two_who_publish_the_same_at_once_make_one_commit(hub, run):
    with ThreadPoolExecutor(2) as both:
        one, two = both.map(lambda _: push(run, NAME), range(2))
    assert hub.commits(NAME) == 2 and one.commit == two.commit
    assert published(hub) == RELEASE | {"README.md"}


@pytest.mark.parametrize(("token", "name", "message"), [
    ("", NAME, "cannot publish to ann/digits: you are not logged in"),
    ("hf_wrong", NAME, "the Hub does not accept the token"),
    (TOKEN, "bob/digits", "the token may not do that .*under 'bob'.*is the owner's name right"),
])  # fmt: skip
def test_who_may_not_publish_there_is_told_why(hub, run, waits, monkeypatch, token, name, message):
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(run / "none"))
    with pytest.raises(UsageError, match=message) as raised:
        push(run, name)
    assert not token or token not in str(raised.value)


def test_bytes_that_change_on_the_way_back_are_fetched_again_and_else_reported(hub, run, waits):
    hub.fail(STAGES["body"], "alter")
    assert push(run, NAME).new
    hub.repos.clear()
    hub.fail(STAGES["body"], "alter", times=FOREVER)
    for _ in range(3):  # also where the commit stands, and nothing is new
        with pytest.raises(UsageError, match=r"ann/digits@\w+: model\.safetensors came back changed, twice"):
            push(run, NAME)
    assert hub.commits(NAME) == 2
    hub.faults.clear()
    assert not push(run, NAME).new


def test_a_release_that_was_changed_where_it_is_published_is_repaired_by_the_next_push(hub, run):
    push(run, NAME)
    for name in (MODEL, CONFIG, HASHES, "heads/digits.json"):
        there = hub.main(NAME)
        hub.repos[NAME].commit("main", {**there, name: there[name][:-9] + b"!" + there[name][-8:]})
        assert push(run, NAME).new and hub.main(NAME) == there


def test_bytes_that_change_on_the_way_there_are_sent_again(hub, run, waits):
    hub.fail("PUT /lfs/", "alter_upload")
    with pytest.raises(UsageError, match="cannot publish to ann/digits: the Hub answers 400"):
        push(run, NAME)
    assert published(hub) == set() and push(run, NAME).new

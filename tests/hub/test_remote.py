"""Loading from the Hub: what is fetched, what is said where it cannot be, and that no wrong byte gets through."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.hub.publish import push
from ssl_hub.hub.remote import Repository
from ssl_hub.hub.verify import verify
from ssl_hub.model.files import CONFIG, HASHES, METHOD, MODEL, RECIPE
from tests.hub.hub_server import FOREVER, TOKEN
from tests.hub.releases import contents, features, measured

NAME = "ann/digits"


@pytest.fixture
def published(hub, run):
    """The server, with the run as a repository."""
    hub.add(NAME, contents(run))
    return hub


def downloaded(hub):
    return {
        line.split("/resolve/")[1].split("/", 1)[1] for line in hub.log if line.startswith("GET") and "resolve" in line
    }


def test_only_the_files_that_are_needed_are_fetched_and_only_once(published, run):
    assert torch.equal(features(f"hf-hub:{NAME}"), features(run))
    assert downloaded(published) == {CONFIG, RECIPE, MODEL, HASHES}
    published.log.clear()
    assert torch.equal(features(f"hf-hub:{NAME}", head="digits"), features(run, head="digits"))
    assert torch.equal(features(f"hf-hub:{NAME}", which="target"), features(run, which="target"))
    assert downloaded(published) == {"heads/digits.json", "heads/digits.safetensors", METHOD}
    with pytest.raises(UsageError, match="no head for 'birds' .*; there: digits"):
        store.load(f"hf-hub:{NAME}", head="birds")


def test_an_owner_in_the_environment_makes_bare_names_enough(published, run, monkeypatch):
    monkeypatch.setenv("SSL_HUB_ORG", "ann")
    assert torch.equal(features("digits"), features(run))
    with pytest.raises(UsageError, match="'numbers' is here, and of the Hub: cannot fetch ann/numbers: there is none"):
        store.load("numbers")


def test_the_store_comes_before_the_hub_and_the_hub_is_not_asked(published, run, monkeypatch):
    monkeypatch.setenv("SSL_HUB_ORG", "ann")
    store.home().mkdir(parents=True)
    run.rename(store.home() / "digits")
    store.load("digits")
    assert published.log == []


def test_revisions_are_branches_tags_and_commits(published, run):
    old = published.repos[NAME].branches["main"]
    changed = {**published.main(NAME), "README.md": b"new"}
    published.repos[NAME].commit("v2", changed)
    for revision in (old, old[:40], "v2", "main"):
        assert store.resolve(f"hf-hub:{NAME}@{revision}").name == published.repos[NAME].at(revision)
    with pytest.raises(UsageError, match=f"cannot fetch {NAME}@v3: there is no such revision"):
        store.load(f"hf-hub:{NAME}@v3")


def test_offline_what_was_fetched_loads_and_nothing_else(published, run, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(UsageError, match="HF_HUB_OFFLINE is set.*, and the local cache .* does not have all of it"):
            store.load(f"hf-hub:{NAME}")
        assert published.log == []
    store.load(f"hf-hub:{NAME}")
    published.log.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert torch.equal(features(f"hf-hub:{NAME}"), features(run))
    assert store.where(f"hf-hub:{NAME}")[0].found
    with pytest.raises(UsageError, match="does not have all of it"):
        store.load(f"hf-hub:{NAME}", which="target")
    assert published.log == []


def test_where_says_what_the_hub_has_and_fetches_nothing(published):
    (place,) = store.where(f"hf-hub:{NAME}")
    assert place.found and "1.3 MB to download" in place.state and downloaded(published) == set()
    store.load(f"hf-hub:{NAME}")
    assert "in the cache" in store.where(f"hf-hub:{NAME}")[0].state
    (place,) = store.where("hf-hub:ann/other")
    assert not place.found and "there is none of that name" in place.state


@pytest.mark.parametrize(
    ("kind", "code"), [("cut", 500), *(("status", code) for code in (500, 503, 401, 403, 404))]
)  # one way to cut
def test_where_and_load_agree_on_what_is_cached_while_the_hub_is_not_to_be_asked(published, run, waits, code, kind):
    name = f"hf-hub:{NAME}"
    published.fail(".*", kind, code=code, times=FOREVER)
    (place,) = store.where(name)
    with pytest.raises(UsageError):
        store.load(name)
    assert not place.found
    published.faults.clear()
    store.load(name)
    published.fail(".*", kind, code=code, times=FOREVER)
    (place,) = store.where(name)
    try:
        assert torch.equal(features(name), features(run)) and place.found
        assert "in the cache; the Hub cannot be asked" in place.state
    except UsageError:
        assert not place.found


def test_bare_names_take_a_revision_as_the_hubs_do(published, run, monkeypatch):
    old = published.repos[NAME].branches["main"]
    published.repos[NAME].commit("v2", {**published.main(NAME), "README.md": b"new"})
    with pytest.raises(UsageError, match=r"no release 'digits@v2'.*not asked: \$SSL_HUB_ORG names no owner"):
        store.load("digits@v2")
    monkeypatch.setenv("SSL_HUB_ORG", "ann")
    for revision in (old, "v2", "main"):
        assert store.resolve(f"digits@{revision}").name == published.repos[NAME].at(revision)
        assert [place.found for place in store.where(f"digits@{revision}")] == [False, True]
    with pytest.raises(UsageError, match="there is no such revision"):
        store.load("digits@v3")


def test_a_home_of_the_client_that_is_no_folder_is_one_line(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/dev/null/token")
    monkeypatch.delenv("HF_TOKEN")
    (place,) = store.where("hf-hub:ann/digits")
    assert not place.found and "cannot write to /dev/null/token (Not a directory)" in place.state


@pytest.mark.parametrize(
    "name", ["hf-hub:digits", "hf-hub:ann/digits@", "hf-hub:../x/y", "hf-hub:a/..", "hf-hub:a/b c", "hf-hub:a/b@../.."]
)
def test_what_names_no_repository_is_refused_before_anything_is_asked(hub, name):
    with pytest.raises(UsageError, match="expected hf-hub:OWNER/NAME"):
        store.load(name)
    assert hub.log == []


def test_a_repository_reads_as_it_is_written():
    assert Repository.parse("hf-hub:a/b@refs/pr/1") == Repository("a/b", "refs/pr/1")
    assert str(Repository.parse("a/b@v1")) == "a/b@v1" and str(Repository("a/b")) == "a/b"


def test_a_group_publishes_under_its_name_pins_mirrors_and_works_offline(hub, run, monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_HUB_ORG", "ann")
    commit = push(run, NAME, private=True, licence="cc-by-4.0").commit
    measured(run)
    assert push(run, NAME).commit != commit
    assert store.resolve(f"digits@{commit}").name == commit  # a pin stays
    assert verify(f"digits@{commit}").hashed
    assert push(f"{store.resolve(f'digits@{commit}')}", str(tmp_path / "shelf" / "pinned")).new  # a copy of one's own
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("SSL_HUB_HOME", str(tmp_path / "shelf"))
    hub.log.clear()
    assert torch.equal(features("pinned"), features(f"digits@{commit}")) and verify("pinned").hashed
    assert [place.kind for place in store.where("pinned") if place.found] == ["store"]
    assert hub.log == []


# Who may read


@pytest.mark.parametrize(
    ("token", "options", "message"),
    [
        ("", {"private": True}, "none of that name at http.*, or it is private and you are not logged in"),
        ("", {"gated": True}, "it is gated; accept its terms at http.*/ann/digits, and log in"),
        (TOKEN, {"gated": True}, "it is gated; accept its terms at http.*/ann/digits$"),
        ("hf_wrong", {}, "the Hub does not accept the token"),
    ],
)
def test_no_access_says_which_it_is_and_never_the_token(hub, run, waits, monkeypatch, token, options, message):
    hub.add(NAME, contents(run), **options)
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(run / "none"))
    with pytest.raises(UsageError, match=message) as raised:
        store.load(f"hf-hub:{NAME}")
    assert not token or token not in str(raised.value)


def test_a_name_that_is_not_there_may_be_private(hub):
    with pytest.raises(UsageError, match="none of that name .*, or it is private and your token has no access to it"):
        store.load("hf-hub:ann/nothing")


# Faults on the way

STAGES = {
    "revision": "GET /api/models/.*/revision/",
    "tree": "GET .*/tree/",
    "ask": "HEAD .*/model.safetensors",
    "body": "GET .*/resolve/.*/model.safetensors",
    "small": "GET .*/resolve/.*/config.json",
}


BODY_FAULTS = {"cut_body", "truncate"}  # a HEAD has no body
CASES = [(s, k) for s in STAGES for k in ("status", "cut", *sorted(BODY_FAULTS)) if s != "ask" or k not in BODY_FAULTS]


@pytest.mark.parametrize(("stage", "kind"), CASES)
def test_one_fault_anywhere_is_got_over(published, run, waits, stage, kind):
    fault = published.fail(STAGES[stage], kind, code=503)
    assert torch.equal(features(f"hf-hub:{NAME}"), features(run))
    assert fault.hits == 1


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", ["status", "cut"])
def test_a_fault_for_ever_ends_in_one_message_and_a_cache_that_still_works(published, run, waits, stage, kind):
    published.fail(STAGES[stage], kind, times=FOREVER)
    message = "the Hub answers 500; try again later" if kind == "status" else "the connection to http.* fails"
    with pytest.raises(UsageError, match=f"cannot fetch {NAME} after 4 attempts: {message}"):
        store.load(f"hf-hub:{NAME}")
    published.faults.clear()
    assert torch.equal(features(f"hf-hub:{NAME}"), features(run))


def test_what_is_in_the_cache_loads_while_the_hub_is_down(published, run, waits):
    store.load(f"hf-hub:{NAME}")
    published.fail(".*", code=503, times=FOREVER)
    assert torch.equal(features(f"hf-hub:{NAME}"), features(run))


@pytest.mark.parametrize("kind", ["alter", "truncate"])
@pytest.mark.parametrize("file", [MODEL, CONFIG, RECIPE])
def test_wrong_bytes_never_get_through(published, run, waits, file, kind):
    published.fail(f"GET .*/resolve/.*/{file}", kind)
    assert torch.equal(features(f"hf-hub:{NAME}"), features(run))
    assert sum(file in line for line in published.log if line.startswith("GET")) == 2


@pytest.mark.parametrize("file", [MODEL, CONFIG])
def test_bytes_that_stay_wrong_are_named_and_leave_the_cache(published, run, waits, file):
    published.fail(f"GET .*/resolve/.*/{file}", "alter", times=FOREVER)
    with pytest.raises(UsageError, match=f"{NAME}: {file} came twice not as hashes.json says it was published"):
        store.load(f"hf-hub:{NAME}")
    published.faults.clear()
    assert torch.equal(features(f"hf-hub:{NAME}"), features(run))


def test_hashes_that_cannot_be_read_are_fetched_again_and_else_refused(hub, run):
    hub.add(NAME, {**contents(run), HASHES: b"[]"})
    with pytest.raises(UsageError, match=f"{NAME}: hashes.json came twice not as"):
        store.load(f"hf-hub:{NAME}")


def test_a_release_without_hashes_loads_with_a_warning(hub, run):
    hub.add(NAME, {name: data for name, data in contents(run).items() if name != HASHES})
    with pytest.warns(UserWarning, match="carries no hashes.json"):
        store.load(f"hf-hub:{NAME}")


def test_a_full_disk_is_said_and_leaves_a_cache_that_works(published, run, waits):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # no file grows beyond that, as on a disk that is full
    try:
        with pytest.raises(UsageError, match=r"cannot write to .* \(File too large\); free some space, or set HF_HOME"):
            store.load(f"hf-hub:{NAME}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert torch.equal(features(f"hf-hub:{NAME}"), features(run))


# Hostile repositories


def test_pickles_alone_are_refused_and_not_even_fetched(hub, run):
    files = {name: data for name, data in contents(run).items() if name != MODEL}
    hub.add(NAME, {**files, "pytorch_model.bin": b"payload", "model.pt": b"payload"})
    said = r"has no model.safetensors.*it has model.pt, pytorch_model.bin, which can run code"
    with pytest.raises(UsageError, match=said):
        store.load(f"hf-hub:{NAME}")
    assert not any("pytorch_model" in line or "model.pt" in line for line in hub.log)


@pytest.mark.parametrize("path", ["../../../outside.json", "heads/../../../../outside.json", "/outside.json"])
def test_a_listing_that_leads_out_of_the_cache_is_not_followed(hub, run, tmp_path, path):
    hub.add(NAME, {**contents(run), path: b"{}"})
    store.load(f"hf-hub:{NAME}")  # asks for its own files by name
    if path.startswith("heads/"):  # verifying asks for all heads, whatever they are called
        with pytest.raises(UsageError, match=f"cannot fetch {NAME}: .*outside.json"):
            verify(f"hf-hub:{NAME}")
    assert not list(tmp_path.rglob("outside.json")) and not Path("/outside.json").exists()


def test_results_and_heads_are_not_written_into_the_cache(published):
    folder = store.resolve(f"hf-hub:{NAME}")
    assert not store.owned(folder)

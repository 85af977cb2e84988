"""A run folder to one commit on the Hub: checked first, compared afterwards, and safe to repeat at any point."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ssl_hub.errors import UsageError
from ssl_hub.hub.card import release_card
from ssl_hub.hub.pictures import SPECTRUM, TRAINING, pictures
from ssl_hub.hub.remote import ID, PREFIX, Repository
from ssl_hub.hub.store import local
from ssl_hub.hub.verify import check
from ssl_hub.model.files import (
    CONFIG,
    HASHES,
    HEADS_FOLDER,
    METHOD,
    MODEL,
    RECIPE,
    RESULTS_FILE,
    as_json,
    hashes_of,
    release_files,
    sha256,
)
from ssl_hub.model.release import read_config, read_tensors
from ssl_hub.processes import speaks

if TYPE_CHECKING:
    from huggingface_hub import HfApi, ModelInfo

CARD = "README.md"
# What a release may consist of, and so what a commit takes away that an earlier release had; other files stay.
OURS = (RECIPE, CONFIG, MODEL, METHOD, RESULTS_FILE, HASHES, f"{HEADS_FOLDER}/*", TRAINING, SPECTRUM, CARD)


@dataclass(frozen=True)
class Publication:
    """What was, or in a dry run would be, published. Legend of ``files``: their names and sizes in bytes.

    ``commit`` is None for a dry run and on all processes but the main one; ``new`` is False where the same release was
    there already.
    """

    repository: Repository
    files: dict[str, int]
    card: str
    commit: str | None = None
    new: bool = False


def push(
    run: str | Path,
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    dry_run: bool = False,
    allow_collapsed: bool = False,
) -> Publication:
    """Publish a finished run, an imported model or any other release to the Hub, in one commit.

    Everything is checked before anything is sent, and the published files are fetched back by their commit and
    compared. An unchanged release makes no commit. Whatever interrupts it, the branch holds the whole release or what
    it held before. On several processes the main one publishes alone.

    Args:
        run: a folder, or a name in the store.
        repository: ``owner/name``; created where it does not exist.
        private: create it so. Raises for a repository that is public already.
        revision: a branch other than ``main``; created where it does not exist.
        dry_run: send nothing.
        allow_collapsed: publish a model whose features have collapsed; its card says so.

    Raises:
        UsageError: a run that is unfinished, collapsed, damaged, changed since it was written or not finite, naming the
            file; a wrong name, no access, a Hub that stays unreachable or does not give back what it was given.
    """
    if not isinstance(repository, str) or not re.fullmatch(ID, repository.removeprefix(PREFIX)):
        raise UsageError(f"got {repository!r}, expected OWNER/NAME: your name on the Hub, and that of the repository")
    if revision == "":
        raise UsageError("revision is '', expected the name of a branch; leave it out for main")
    target = Repository(repository.removeprefix(PREFIX), revision)
    folder = local(run)
    staged = stage(folder, target, allow_collapsed=allow_collapsed)
    plan = Publication(target, {name: _size(content) for name, content in staged.items()}, _text(staged[CARD]))
    if dry_run or not speaks():
        return plan
    commit, new = _commit(target, staged, private=private)
    if new:
        _compare(Repository(target.id, commit), folder, staged)
    return Publication(target, plan.files, plan.card, commit, new)


def stage(folder: Path, target: Repository, *, allow_collapsed: bool) -> dict[str, Path | bytes]:
    """The files to publish, by name in the repository: a path, or the content of what is made for the purpose."""
    check(folder)
    if read_config(folder)["ssl_hub"].get("collapsed") and not allow_collapsed:
        raise UsageError(
            f"the features of {folder} had collapsed when its training ended, so it is no useful backbone; to publish"
            " it all the same, and have its card say so, give --allow-collapsed"
        )
    names = release_files(folder)
    drawn = pictures(folder, target.id.split("/")[1])
    made = {CARD: release_card(folder, target.id, pictures=list(drawn)).encode(), **drawn}
    return {**{name: folder / name for name in names}, HASHES: as_json(hashes_of(folder, names)), **made}


def _commit(target: Repository, staged: Mapping[str, Path | bytes], *, private: bool) -> tuple[str, bool]:
    """Have the branch hold exactly this release; returns its commit, and whether that is a new one.

    Each attempt looks at the branch first. So one that broke off after the commit finds the work done, and one that
    meets somebody else's commit starts from there.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    from ssl_hub.hub.answers import patiently

    api, name, branch = HfApi(), str(target), target.revision or "main"
    patiently(partial(_create, api, target, private=private), name, "publish to")
    wanted = {path: _identity(content) for path, content in staged.items()}
    found: list[str | None] = []  # at each attempt

    def attempt() -> str:
        head = api.model_info(target.id, revision=branch).sha
        found.append(head)
        there = _there(api, target.id, head)
        gone = [path for path in there if path not in wanted and any(fnmatchcase(path, ours) for ours in OURS)]
        changed = [path for path, identities in wanted.items() if there.get(path) not in identities]
        if not changed and not gone:
            assert head is not None
            return head
        operations = [CommitOperationAdd(path, staged[path]) for path in changed]
        return api.create_commit(
            target.id,
            [*operations, *(CommitOperationDelete(path) for path in gone)],
            commit_message=f"Release with ssl_hub: {len(changed)} file(s)",
            revision=branch,
            parent_commit=head,
        ).oid

    commit = patiently(attempt, name, "publish to")
    return commit, commit != found[0]


def _create(api: HfApi, target: Repository, *, private: bool) -> None:
    """Have the repository and its branch exist."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        found: ModelInfo | None = api.model_info(target.id)
    except RepositoryNotFoundError:
        found = None
    if found is None:
        api.create_repo(target.id, private=private or None, exist_ok=True)
    elif private and not found.private:
        raise UsageError(f"{target.id} exists and is public; make it private in its settings, or drop --private")
    if target.revision not in (None, "main"):
        assert target.revision is not None
        api.create_branch(target.id, branch=target.revision, exist_ok=True)


def _there(api: HfApi, repository: str, head: str | None) -> dict[str, str]:
    """What the repository holds: the sha256 of each large file, git's own hash of each other."""
    from huggingface_hub.hf_api import RepoFile

    files = [
        entry for entry in api.list_repo_tree(repository, revision=head, recursive=True) if isinstance(entry, RepoFile)
    ]
    return {file.path: file.lfs.sha256 if file.lfs else file.blob_id for file in files}


def _identity(content: Path | bytes) -> set[str]:
    """The two hashes under which the Hub may know this content."""
    data = content.read_bytes() if isinstance(content, Path) else content
    return {hashlib.sha256(data).hexdigest(), hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}


def _compare(published: Repository, folder: Path, staged: Mapping[str, Path | bytes]) -> None:
    """Fetch the commit as a stranger would, and raise UsageError unless every file is the one that was sent."""
    from huggingface_hub import snapshot_download

    from ssl_hub.hub.answers import patiently

    with tempfile.TemporaryDirectory() as cache:
        names = list(staged)
        fetch = partial(
            snapshot_download, published.id, revision=published.revision, cache_dir=cache, allow_patterns=names
        )
        for last_try in (False, True):
            got = Path(patiently(fetch, str(published), "load back what was published to"))
            wrong = [name for name, content in staged.items() if not _same(got / name, content)]
            if not wrong:
                break
            if last_try:
                raise UsageError(
                    f"{published}: {', '.join(wrong)} came back changed, twice; the commit stands, so look at it, and"
                    " publish again to repair it"
                )
            for name in wrong:
                (got / name).resolve().unlink(missing_ok=True)
                (got / name).unlink(missing_ok=True)
        before, after = read_tensors(folder / MODEL), read_tensors(got / MODEL)
        assert all((before[name] == after[name]).all() for name in before), "equal files hold equal tensors"


def _same(path: Path, content: Path | bytes) -> bool:
    digest = sha256(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()
    return path.is_file() and sha256(path) == digest


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _text(content: Path | bytes) -> str:
    return content.decode() if isinstance(content, bytes) else content.read_text()

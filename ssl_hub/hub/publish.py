"""A run folder to one commit on the Hub: checked first, compared afterwards, and safe to repeat at any point."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ssl_hub.atomic import expanded, replace_file, scratch
from ssl_hub.errors import UsageError
from ssl_hub.hub.card import release_card
from ssl_hub.hub.folders import check_target, put
from ssl_hub.hub.markdown import slug
from ssl_hub.hub.pictures import SPECTRUM, TRAINING, pictures
from ssl_hub.hub.readme import is_ours, merged
from ssl_hub.hub.remote import ID, PREFIX, Repository, evict
from ssl_hub.hub.store import local, owned, resolve
from ssl_hub.hub.verify import EVERY, check
from ssl_hub.model.files import CONFIG, HASHES, RECIPE, as_json, hashes_of, record, release_files, sha256
from ssl_hub.model.lineage import published
from ssl_hub.model.reading import read_json
from ssl_hub.model.release import read_config
from ssl_hub.processes import speaks

if TYPE_CHECKING:
    from huggingface_hub import HfApi

CARD, PICTURES = "README.md", (TRAINING, SPECTRUM)
# What a release may consist of, and so what a commit takes away that an earlier release had; other files stay.
OURS = (*EVERY, HASHES, *PICTURES, CARD)

Content = Path | bytes  # of a file: as it lies there, or as it is made for the purpose
Staged = Mapping[str, Content]


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
    licence: str | None = None,
) -> Publication:
    """Publish a finished run, an imported model or any other release to the Hub in one commit, or to a folder.

    Everything is checked before anything is sent, and what is there then is fetched back by its commit and compared,
    also where nothing was new: a release that does not come back as it was sent is never passed over. An unchanged
    release makes no commit. What the owner has written into the README there stays. Whatever interrupts it, the branch
    holds the whole release or what it held before. On several processes the main one publishes alone.

    Args:
        run: a folder, a name in the store, or ``hf-hub:OWNER/NAME@REVISION``.
        repository: ``owner/name``, created where it does not exist; or the path of a folder, which begins with ``.``,
            ``/`` or ``~``.
        private: create it so. Raises for a repository that is public already.
        revision: a branch other than ``main``; created where it does not exist.
        dry_run: send nothing.
        allow_collapsed: publish a model whose features have collapsed; its card says so.
        licence: of the weights, which the release then says; by default what it says already, which may be none.

    Raises:
        UsageError: a run that is unfinished, collapsed, damaged, changed since it was written or not finite, naming the
            file; a wrong name, no access, a Hub that stays unreachable or does not give back what it was given.
    """
    if isinstance(repository, str) and repository.startswith((".", "/", "~")):
        if private or revision is not None:
            raise UsageError(f"{repository} is a folder, which has no revisions and nobody to be private from")
        return _to_folder(_source(run), _folder(repository), dry_run, allow_collapsed, licence)
    if not isinstance(repository, str) or not re.fullmatch(ID, repository.removeprefix(PREFIX)):
        raise UsageError(f"got {repository!r}, expected OWNER/NAME: your name on the Hub, and that of the repository")
    if revision == "":
        raise UsageError("revision is '', expected the name of a branch; leave it out for main")
    target = Repository(repository.removeprefix(PREFIX), revision)
    folder = _source(run)
    staged = stage(folder, target, allow_collapsed=allow_collapsed, licence=licence)
    plan = _planned(target, staged)
    if dry_run or not speaks():
        return plan
    _note_licence(folder, staged)
    commit, new, sent = _commit(target, staged, private=private)
    _compare(Repository(target.id, commit), sent)
    return replace(plan, commit=commit, new=new)


def _planned(target: Repository, staged: Staged) -> Publication:
    sizes = {name: len(c) if isinstance(c, bytes) else c.stat().st_size for name, c in staged.items()}
    return Publication(target, sizes, _read(staged[CARD]).decode(errors="replace"))


def _folder(path: str) -> Path:
    try:
        return expanded(path).resolve()
    except ValueError as error:  # an empty byte
        raise UsageError(f"got {path!r} ({error}), expected the path of a folder") from None


def _source(run: str | Path) -> Path:
    """The folder of what is to be published; of a release of the Hub, all of it in the cache."""
    return resolve(run, EVERY) if str(run).startswith(PREFIX) else local(run)


def _to_folder(folder: Path, target: Path, dry_run: bool, allow_collapsed: bool, licence: str | None) -> Publication:
    """The same release in a folder: all of it, or what was there before."""
    check_target(target, folder)
    staged = stage(folder, Repository(f"OWNER/{slug(target.name)}"), allow_collapsed=allow_collapsed, licence=licence)
    there = (target / CARD).read_bytes() if (target / CARD).is_file() else None
    staged[CARD] = _with_owners_words(staged[CARD], there, str(target))
    plan = _planned(Repository(str(target)), staged)
    if dry_run or not speaks():
        return plan
    _note_licence(folder, staged)
    new = not all(_same(target / name, content) for name, content in staged.items())
    if new:
        put(target, staged, ours=OURS)
    return replace(plan, commit=str(target), new=new)


def _note_licence(folder: Path, staged: Staged) -> None:
    """Have the release itself say the licence that was stated, so that the next push says it too."""
    content = staged[CONFIG]
    if isinstance(content, bytes) and owned(folder):
        replace_file(folder / CONFIG, content)
        record(folder, CONFIG)


def stage(folder: Path, target: Repository, *, allow_collapsed: bool, licence: str | None = None) -> dict[str, Content]:
    """The files to publish, by name in the repository: a path, or the content of what is made for the purpose."""
    check(folder)
    if read_config(folder)["ssl_hub"].get("collapsed") and not allow_collapsed:
        raise UsageError(
            f"the features of {folder} had collapsed when its training ended, so it is no useful backbone; to publish"
            " it all the same, and have its card say so, give --allow-collapsed"
        )
    names = release_files(folder)
    hashes = hashes_of(folder, names)
    stated: dict[str, bytes] = {}
    if licence is not None:
        if not isinstance(licence, str) or not licence.strip() or not licence.isprintable() or len(licence) > 200:
            raise UsageError(f"licence is {str(licence)[:60]!r}, expected its name, such as cc-by-4.0")
        config = read_json(folder / CONFIG)
        config.setdefault("ssl_hub", {})["licence"] = licence.strip()
        stated[CONFIG] = (json.dumps(config, indent=2) + "\n").encode()
    drawn = pictures(folder, target.id.split("/")[1])
    card = release_card(folder, target.id, pictures=list(drawn), licence=licence)
    if RECIPE in names and (public := published(recipe := read_json(folder / RECIPE))) != recipe:
        stated[RECIPE] = (json.dumps(public, indent=2) + "\n").encode()
    hashes |= {name: hashlib.sha256(content).hexdigest() for name, content in stated.items()}
    return {**{name: folder / name for name in names}, **stated, HASHES: as_json(hashes), CARD: card.encode(), **drawn}


def _commit(target: Repository, staged: Staged, *, private: bool) -> tuple[str, bool, dict[str, Content]]:
    """Have the branch hold exactly this release; returns its commit, whether that is a new one, and what it holds.

    The release, the card and the pictures are compared apart. Of the card, the owner's words stay; pictures of the same
    release are left as they are, since the same log is drawn otherwise by other versions.

    Each attempt looks at the branch first. So one that broke off after the commit finds the work done, and one that
    meets somebody else's commit starts from there.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    from ssl_hub.hub.answers import patiently

    api, name, branch = HfApi(), str(target), target.revision or "main"
    patiently(partial(_create, api, target, private=private), name, "publish to")
    found: list[str | None] = []  # at each attempt
    sent: dict[str, Content] = {}

    def attempt() -> str:
        head = api.model_info(target.id, revision=branch).sha
        found.append(head)
        there = _there(api, target.id, head)
        sent.clear()
        sent.update({**staged, CARD: _with_owners_words(staged[CARD], _readme(target.id, head, there), name)})
        wanted = {path: _identity(content) for path, content in sent.items()}
        gone = [path for path in there if path not in wanted and any(fnmatchcase(path, ours) for ours in OURS)]
        changed = [path for path, identities in wanted.items() if there.get(path) not in identities]
        if {*gone, *changed} <= {CARD, *PICTURES}:  # the same weights and numbers
            for picture in [path for path in PICTURES if path in there]:
                sent.pop(picture, None)
            gone = [path for path in gone if path not in PICTURES]
            changed = [path for path in changed if path not in PICTURES or path not in there]
        if not changed and not gone:
            assert head is not None
            return head
        operations = [CommitOperationAdd(path, sent[path]) for path in changed]
        return api.create_commit(
            target.id,
            [*operations, *(CommitOperationDelete(path) for path in gone)],
            commit_message=f"Release with ssl_hub: {len(changed)} file(s)",
            revision=branch,
            parent_commit=head,
        ).oid

    commit = patiently(attempt, name, "publish to")
    return commit, commit != found[0], sent


def _with_owners_words(card: Path | bytes, there: bytes | None, where: str) -> bytes:
    """The card as it is to be there, where somebody may have written into it."""
    if there is not None and not is_ours(there):
        warnings.warn(
            f"the {CARD} at {where} is none that ssl_hub wrote, so it stays as it is and may not be true of this"
            " release; delete it there, and push again, to have the card",
            stacklevel=4,
        )
    return merged(_read(card).decode(errors="replace"), there)


def _readme(repository: str, head: str | None, there: Mapping[str, str]) -> bytes | None:
    """The README of a commit; None where there is none."""
    from huggingface_hub import hf_hub_download

    if CARD not in there:
        return None
    with scratch() as cache:
        return Path(hf_hub_download(repository, CARD, revision=head, cache_dir=cache)).read_bytes()


def _create(api: HfApi, target: Repository, *, private: bool) -> None:
    """Have the repository and its branch exist."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        if not api.model_info(target.id).private and private:
            raise UsageError(f"{target.id} exists and is public; make it private in its settings, or drop --private")
    except RepositoryNotFoundError:
        api.create_repo(target.id, private=private or None, exist_ok=True)
    if target.revision is not None and target.revision != "main":
        api.create_branch(target.id, branch=target.revision, exist_ok=True)


def _there(api: HfApi, repository: str, head: str | None) -> dict[str, str]:
    """What the repository holds: the sha256 of each large file, git's own hash of each other."""
    from huggingface_hub.hf_api import RepoFile

    entries = api.list_repo_tree(repository, revision=head, recursive=True)
    return {e.path: e.lfs.sha256 if e.lfs else e.blob_id for e in entries if isinstance(e, RepoFile)}


def _identity(content: Path | bytes) -> set[str]:
    """The two hashes under which the Hub may know this content."""
    data = _read(content)
    return {hashlib.sha256(data).hexdigest(), hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}


def _compare(published: Repository, staged: Staged) -> None:
    """Fetch the commit as a stranger would, and raise UsageError unless every file is the one that was sent."""
    from huggingface_hub import snapshot_download

    from ssl_hub.hub.answers import patiently

    with scratch() as cache:
        at, names = published.revision, list(staged)
        fetch = partial(snapshot_download, published.id, revision=at, cache_dir=cache, allow_patterns=names)
        for _ in range(2):
            got = Path(patiently(fetch, str(published), "load back what was published to"))
            wrong = [name for name, content in staged.items() if not _same(got / name, content)]
            if not wrong:
                return
            for name in wrong:
                evict(got / name)
    raise UsageError(
        f"{published}: {', '.join(wrong)} came back changed, twice; the commit stands, so look at it, and publish again"
        " to repair it"
    )


def _same(path: Path, content: Content) -> bool:
    digest = sha256(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()
    return path.is_file() and sha256(path) == digest


def _read(content: Content) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()

"""Releases on the Hugging Face Hub: found, fetched by revision, and checked against the hashes they carry."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from ssl_hub.errors import UsageError
from ssl_hub.model.files import CONFIG, HASHES, MODEL, PICKLES, changed, readable, release_files

PREFIX = "hf-hub:"
TAG = "ssl_hub"  # what the card of every release carries
REVISION = r"(?!.*\.\.)(\w[\w.,/+=%-]*)?"  # what git takes as a name, less what nobody uses
ID = r"[\w-][\w.-]*/[\w-][\w.-]*"


@dataclass(frozen=True)
class Repository:
    """A repository of the Hub at a revision: a branch, a tag or a commit; None is the newest."""

    id: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> Repository:
        """``owner/name`` or ``owner/name@revision``, with or without ``hf-hub:`` before it."""
        name, at, revision = text.removeprefix(PREFIX).partition("@")
        if not re.fullmatch(ID, name) or bool(at) != bool(revision) or not re.fullmatch(REVISION, revision):
            raise UsageError(f"got {text!r}, expected {PREFIX}OWNER/NAME or {PREFIX}OWNER/NAME@REVISION")
        return cls(name, revision or None)

    def __str__(self) -> str:
        return self.id if self.revision is None else f"{self.id}@{self.revision}"


def look(repository: Repository, files: Sequence[str]) -> str:
    """What a fetch would find, in words. Raises UsageError where it would fail."""
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError, RevisionNotFoundError

    from ssl_hub.hub.answers import HTTPError, explained, patiently

    name, revision, cached = repository.id, repository.revision, None
    files = [*files, HASHES]
    with suppress(LocalEntryNotFoundError):
        cached = Path(snapshot_download(name, revision=revision, allow_patterns=[*files], local_files_only=True)).name
    if constants.HF_HUB_OFFLINE and cached is not None:
        return f"commit {cached[:8]}, in the cache"
    ask = partial(HfApi().model_info, name, revision=revision, files_metadata=True)
    if cached is None:
        found = patiently(ask, str(repository), "find")
    else:
        try:
            found = ask()
        except RevisionNotFoundError as error:
            raise explained(error, str(repository), "find") from None
        except (HTTPError, OSError, ValueError) as error:  # a fetch takes what is in the cache then
            reason = str(explained(error, str(repository), "ask for")).partition(": ")[2]
            return f"commit {cached[:8]}, in the cache; the Hub cannot be asked: {reason}"
    size = sum(file.size or 0 for file in found.siblings or [] if file.rfilename in files)
    state = "in the cache" if found.sha == cached else f"{readable(size)} to download"
    return f"commit {(found.sha or '')[:8]}, {state}"


def fetch(repository: Repository, files: Sequence[str], *, check_hashes: bool = True) -> Path:
    """Folder in the Hub's cache that holds those of ``files`` (names or patterns) that the release has, as published if
    ``check_hashes``.

    Only these are downloaded. A file that is not what hashes.json says is downloaded once more, and if that does not
    help it is removed from the cache.

    Raises:
        UsageError: no such repository or revision, no access, no connection, no space, or files that are not what was
            published.
    """
    from huggingface_hub import hf_hub_download, snapshot_download

    from ssl_hub.hub.answers import Unreachable, patiently

    wanted = [*files, HASHES]
    name = str(repository)
    download = partial(snapshot_download, repository.id, revision=repository.revision, allow_patterns=wanted)
    try:
        folder = Path(patiently(download, name, "fetch"))
    except Unreachable:
        if (cached := _cached(download)) is None:
            raise
        folder = cached
    for required in (CONFIG, MODEL):
        if not (folder / required).is_file():
            raise UsageError(f"{name} has no {required}, so it is no release; {_what_else(repository)}")
    if check_hashes and not (folder / HASHES).is_file():
        warnings.warn(f"{name} carries no {HASHES}: what was downloaded could not be checked", stacklevel=4)
    if not check_hashes:
        return folder
    if damaged := _damaged(folder, files):
        listed = ", ".join(damaged)
        for file in {*damaged, HASHES}:
            again = partial(hf_hub_download, repository.id, file, revision=folder.name, force_download=True)
            try:
                patiently(again, name, f"fetch {file} again from")
            except UsageError as error:
                raise UsageError(
                    f"{name}: {listed} in the cache is not as {HASHES} says it was published, and {error}"
                ) from None
        if _damaged(folder, files):
            for file in {*damaged, HASHES}:
                evict(folder / file)
            raise UsageError(
                f"{name}: {listed} came twice not as {HASHES} says it was published; removed from the cache, try again"
                " later or ask its owner"
            )
    return folder


def releases_of(owner: str) -> list[str]:
    """The releases of an owner by name. UsageError where the Hub cannot be asked."""
    from huggingface_hub import HfApi

    from ssl_hub.hub.answers import patiently

    ask = partial(HfApi().list_models, author=owner, filter=TAG)
    return sorted(model.id for model in patiently(lambda: list(ask()), owner, "list the models of"))


def record(name: str, files: Sequence[str]) -> Path:
    """The folder in the Hub's cache that has those of ``files`` that the release has; weights are not downloaded.
    UsageError where it cannot be had."""
    from huggingface_hub import snapshot_download

    from ssl_hub.hub.answers import patiently

    return Path(patiently(partial(snapshot_download, name, allow_patterns=[*files]), name, "fetch"))


def _cached(download: Callable[..., str]) -> Path | None:
    """What of it is in the cache, without asking the Hub; None where that is not enough."""
    try:
        return Path(download(local_files_only=True))
    except (OSError, ValueError):
        return None


def _damaged(folder: Path, files: Sequence[str]) -> list[str]:
    """Those of ``files`` that are not as they were published; hashes.json itself where it cannot be read."""
    asked = [name for name in release_files(folder) if any(fnmatchcase(name, pattern) for pattern in files)]
    try:
        return changed(folder, asked)
    except UsageError:
        return [HASHES]


def evict(path: Path) -> None:
    """Remove a file from the Hub's cache: the name in the snapshot, and the content that it links to."""
    content = path.resolve()
    with suppress(OSError):  # a cache that cannot be written keeps it
        path.unlink(missing_ok=True)
        content.unlink(missing_ok=True)


def _what_else(repository: Repository) -> str:
    """Whether weights that are pickled are there instead."""
    from huggingface_hub import HfApi

    from ssl_hub.hub.answers import patiently

    listing = partial(HfApi().list_repo_files, repository.id, revision=repository.revision)
    files = patiently(listing, str(repository), "list")
    pickled = sorted(file for file in files if Path(file).suffix in PICKLES)
    if pickled:
        return f"it has {', '.join(pickled)}, which can run code when read, and is not; see `ssl-hub import`"
    return f"it has {', '.join(sorted(files)[:5]) or 'no files'}"

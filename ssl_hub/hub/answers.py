"""What the Hub's refusals mean, and which of them another try can mend."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Callable
from typing import TypeVar

from huggingface_hub import constants, get_token
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    IncompleteSnapshotError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from ssl_hub.errors import UsageError

# Every failure of the HTTP client below to speak to the Hub; which client that is differs over versions.
HTTPError: type[Exception] = HfHubHTTPError.__bases__[0]

T = TypeVar("T")


class Unreachable(UsageError):
    """The connection to the Hub breaks, again and again: nothing it said was a refusal."""


ATTEMPTS = 4
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds; the wait doubles, unless the Hub says how long
PASSING = {408, 409, 412, 425, 429, 500, 502, 503, 504}  # 409 and 412: another commit came first
DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}


def patiently(action: Callable[[], T], repository: str, doing: str) -> T:
    """Do it, and again where the Hub is busy or the connection breaks; at most four times.

    ``action`` must be safe to repeat after it has half or wholly happened. Raises UsageError that says why one cannot
    do what ``doing`` says, to ``repository``.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return action()
        except UsageError:
            raise
        except (OSError, HTTPError, EntryNotFoundError, ValueError, RuntimeError) as error:
            cause = _cause(error)
            wait = _wait(cause, attempt)
            if wait is None or attempt == ATTEMPTS or wait > LONGEST_WAIT:
                raise explained(cause, repository, doing, attempts=attempt) from None
            time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def _cause(error: BaseException) -> BaseException:
    """What went wrong, below the client's wrappers around it. An error that is none of the Hub's is raised again."""
    if isinstance(error, (LocalEntryNotFoundError, RuntimeError)) and error.__cause__ is not None:
        return _cause(error.__cause__)
    if isinstance(error, RuntimeError):
        raise error
    return error


def _wait(cause: BaseException, attempt: int) -> float | None:
    """Seconds until another try makes sense, or None where none does."""
    backoff = FIRST_WAIT * 2.0 ** (attempt - 1)
    if isinstance(cause, HfHubHTTPError):
        asked = cause.response.headers.get("Retry-After", "")
        longest = max(backoff, float(asked)) if asked.isdigit() else backoff
        return longest if cause.response.status_code in PASSING else None
    garbled = isinstance(cause, json.JSONDecodeError)  # an error page where an answer was expected
    cut = isinstance(cause, OSError) and "Consistency check failed" in str(cause)  # fewer bytes than announced
    return backoff if isinstance(cause, HTTPError) or garbled or cut else None


def explained(cause: BaseException, repository: str, doing: str, *, attempts: int = 1) -> UsageError:
    """One message that says which of wrong name, private, gated, permissions, network or disk it is. Never a token."""
    tries = f" after {attempts} attempts" if attempts > 1 else ""
    start = f"cannot {doing} {repository}{tries}: "
    if isinstance(cause, OSError) and cause.errno in DISK:  # first, since the token may be on that disk too
        return UsageError(
            f"{start}cannot write to {cause.filename or constants.HF_HUB_CACHE} ({cause.strerror}); free some space, or"
            " set HF_HOME to another disk"
        )
    token = get_token()
    where = constants.ENDPOINT
    if isinstance(cause, (OfflineModeIsEnabled, IncompleteSnapshotError)) or constants.HF_HUB_OFFLINE:
        return UsageError(
            f"{start}the Hub may not be asked (HF_HUB_OFFLINE is set), and the local cache {constants.HF_HUB_CACHE}"
            " does not have all of it; unset it, or use what is here (`ssl-hub list`)"
        )
    if isinstance(cause, GatedRepoError):
        login = "" if token else ", and log in (`hf auth login`, or set HF_TOKEN)"
        return UsageError(f"{start}it is gated; accept its terms at {where}/{repository.split('@')[0]}{login}")
    if isinstance(cause, RevisionNotFoundError):
        return UsageError(f"{start}there is no such revision; leave it out for the newest")
    if isinstance(cause, RepositoryNotFoundError):
        access = (
            "your token has no access to it" if token else "you are not logged in (`hf auth login`, or set HF_TOKEN)"
        )
        return UsageError(f"{start}there is none of that name at {where}, or it is private and {access}")
    if isinstance(cause, HfHubHTTPError):
        return UsageError(start + _of_status(cause, token, writing=doing.startswith("publish")))
    if isinstance(cause, HTTPError):
        return Unreachable(f"{start}the connection to {where} fails ({_hidden(str(cause), token)}); try again later")
    return UsageError(f"{start}{_hidden(str(cause), token)}")


def not_to_be_had(name: str, cause: BaseException | None, repository: str | None, address: str | None) -> UsageError:
    """Weights of timm, by the ``name`` that was asked for: where they were looked for, why they did not come from the
    ``repository`` or ``address`` that timm knows, and the ways on."""
    start, said = f"the weights of {name!r} cannot be had", _hidden(str(cause), get_token())
    file = "give a file of them (backbone.init=PATH in training, else `ssl-hub import`)"
    if repository is None:
        return UsageError(f"{start} from {address} ({said}); fetch it beforehand, and {file}")
    ways = [f"fetch them beforehand into that cache (`hf download {repository}`)", file]
    why = f"the Hub fails ({said})"
    if constants.HF_HUB_OFFLINE:
        ways, why = ["unset HF_HUB_OFFLINE", *ways], "the Hub was not asked (HF_HUB_OFFLINE is set)"
    elif isinstance(cause, LocalEntryNotFoundError):
        why = f"the Hub ({constants.ENDPOINT}) cannot be reached"
    return UsageError(
        f"{start}: {repository} is not whole in the cache {constants.HF_HUB_CACHE}, and {why}; {', or '.join(ways)}"
    )


def _of_status(error: HfHubHTTPError, token: str | None, *, writing: bool) -> str:
    status = error.response.status_code
    said = _hidden(error.server_message or "", token)
    quoted = f" ({said})" if said else ""
    if status == 401:
        return (
            f"the Hub does not accept the token{quoted}; make a new one and log in again (`hf auth login`, or HF_TOKEN)"
            if token
            else f"you are not logged in{quoted}; `hf auth login`, or set HF_TOKEN"
        )
    if status == 403:
        role = "is the owner's name right, and has the token the role 'write'?"
        return f"the token may not do that{quoted}; {role if writing else 'has its user access?'}"
    if status == 404:
        return f"there is no such thing{quoted}"
    if status in PASSING:
        return f"the Hub answers {status}{quoted}; {'nothing more was changed, ' * writing}try again later"
    return f"the Hub answers {status}{quoted}"


def _hidden(text: str, token: str | None) -> str:
    """One short line without the token, wherever it came from."""
    line = " ".join(text.replace(token, "***").split() if token else text.split())
    return line if len(line) <= 300 else f"{line[:300]}..."

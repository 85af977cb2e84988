"""Files at addresses (``s3://``, ``gs://``, ``hf://``, ``https://``): listed and read through fsspec, to the last byte.

fsspec and its file systems know the protocols, and their own credentials. What is here is what a run of days needs of
them: a cut connection is taken up at the byte where it was cut, a server that does not answer is asked again for two
minutes and then given up, and what can not be mended by asking again is said at once, in one line.
"""

from __future__ import annotations

import io
import itertools
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, TypeVar
from urllib.parse import parse_qsl, urlsplit

from ssl_hub.errors import UsageError

T = TypeVar("T")

WAITS = (1, 2, 4, 8, 16, 32, 64)
"""Seconds between one try and the next."""

_LOG = logging.getLogger(__name__)
_BLOCK = 8 * 2**20  # bytes asked for at a time: at 100 MB/s three times the latency of an object store
_STALLED = 60  # seconds without a byte, after which an HTTP server is asked again; s3fs and the Hub's have their own
_PASSES = (408, 425, 429, 500, 502, 503, 504)  # of HTTP: may be otherwise in a moment
_SECRET = re.compile(r"sig|token|secret|passw|credential|key|auth", re.IGNORECASE)  # in a parameter of a query
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs",
             "http": "aiohttp requests", "https": "aiohttp requests"}  # fmt: skip
_CREDENTIALS = {"s3": "AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                "gs": "GOOGLE_APPLICATION_CREDENTIALS", "hf": "`hf auth login`", "https": "~/.netrc",
                "http": "~/.netrc"}  # fmt: skip


def is_address(data: str) -> bool:
    """Whether it has a protocol. Raises :class:`UsageError` where it would run a command, or holds credentials."""
    if data.startswith("pipe:"):
        raise UsageError("a stream runs no commands, as 'pipe:' would; give the address itself: s3://, gs://, https://")
    if not re.match(r"[a-z][a-z0-9+.-]*:(//|:.*://)", data):
        return False
    for hop in data.split("::"):
        parts = urlsplit(hop)
        if "@" in parts.netloc or any(_SECRET.search(name) for name, _ in parse_qsl(parts.query, True)):
            where = _CREDENTIALS.get(parts.scheme, "the environment")
            raise UsageError(
                f"address {shown(data)} holds credentials, which recipe.json, the card and logs would publish; take "
                f"them out and give them by {where}"
            )
    return True


def shown(text: str) -> str:
    """The text without what may be secret in the addresses in it: users, passwords and queries."""
    return re.sub(r"(://)[^/@\s'\"]*@", r"\1", re.sub(r"(://[^\s?'\"]*)\?[^\s'\"]*", r"\1", text))


def braced(pattern: str) -> list[str]:
    """All that a pattern with braces means: ``a-{08..10}.{tar,tgz}`` is six names. Numbers keep their zeros."""
    parts: list[list[str]] = []
    end = 0
    for match in _RANGE.finditer(pattern):
        first, last, listed = match.groups()
        numbers = () if first is None else range(int(first), int(last) + 1)
        if first is not None and not numbers:
            raise UsageError(f"{match[0]} in {shown(pattern)} counts down; write the smaller number first")
        parts += [[pattern[end : match.start()]], [f"{n:0{len(first)}}" for n in numbers] or listed.split(",")]
        end = match.end()
    return ["".join(some) for some in itertools.product(*parts, [pattern[end:]])]


def is_folder(address: str, endings: tuple[str, ...]) -> bool:
    """Whether it names no files: no pattern, and nothing with one of the endings."""
    return not any(_is_pattern(name) or has_ending(name, endings) for name in braced(_taken_apart(address)[1]))


def matching(address: str, endings: tuple[str, ...]) -> list[str]:
    """Addresses of the files that a file's address, one with braces or a pattern means, those of a pattern in order.

    Without a pattern nothing is asked of the server: a file that is not there is met when it is read.
    """
    before, names, after = _taken_apart(address)
    found: list[str] = []
    for name in braced(names):
        found += _listed(before, name, after, None).values() if _is_pattern(name) else [before + name + after]
    return [file for file in found if has_ending(file, endings)]


def below(address: str, endings: tuple[str, ...], depth: int) -> dict[str, str]:
    """Addresses of the files in a folder and up to ``depth`` folders below it, by their paths from the folder on."""
    found = _listed(*_taken_apart(address), depth)
    return {name: file for name, file in found.items() if has_ending(name, endings)}


def opened(file: str) -> BinaryIO:
    """A file here or at an address."""
    return open_file(file) if is_address(file) else open(file, "rb")


def has_ending(file: str, endings: tuple[str, ...]) -> bool:
    return file_name(file).lower().endswith(endings)


def file_name(file: str) -> str:
    """The last part of a path, or of an address without its query."""
    name = _taken_apart(file)[1].partition("?")[0] if "://" in file else file
    return name.rpartition("/")[2]


def _is_pattern(name: str) -> bool:
    return re.search(r"[*\[]", name) is not None


def _taken_apart(address: str) -> tuple[str, str, str]:
    """What stands before and after the part that names files: ``simplecache::``, and the ``::s3://..`` of a chain."""
    before, names, after = re.fullmatch(r"((?:\w+::)*)(.*?)(::.*)?", address, re.DOTALL).groups("")  # type: ignore[union-attr]
    return before, names, after


def _listed(before: str, name: str, after: str, depth: int | None) -> dict[str, str]:
    """Of a folder, or of a pattern where ``depth`` is None: addresses of files by their paths, without hidden ones."""
    if re.match(r"https?:", name) and not after:
        raise UsageError(
            f"{shown(name)}: what a folder holds cannot be asked over HTTP; give a file, or all with braces, as in "
            f"{re.split('/?[^/]*[*]|/$', shown(name))[0]}/train-{{000000..000146}}.tar"
        )

    def listed() -> dict[str, str]:
        system, path = _system(name + after)
        found = system.glob(path) if depth is None else system.find(path, maxdepth=depth + 1)
        if not found and depth is not None and not system.exists(path):
            raise FileNotFoundError(path)
        root = "" if depth is None else path.rstrip("/") + "/"
        return {file.removeprefix(root): before + system.unstrip_protocol(file) + after for file in sorted(found)}

    found = _persistently(name, listed)
    return {path: file for path, file in found.items() if not re.search(r"(^|/)(\.|__)", path)}


def open_file(address: str) -> BinaryIO:
    """A file for reading and seeking. :class:`UsageError`, here and in reading, says what cannot be had and why."""
    return io.BufferedReader(_Persistent(address))


class _Persistent(io.RawIOBase):
    """A file that is opened anew, at the byte where it was, whenever reading fails for a reason that may pass."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._place = 0
        self._file: Any = None
        self._system: Any = None  # kept: one that is made of a file, as zip:// is, closes it when it goes
        self._size: int = _persistently(address, lambda: self._opened().seek(0, io.SEEK_END))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + (0, self._place, self._size)[whence]
        return self._place

    def readinto(self, buffer: Any) -> int:
        part: bytes = _persistently(self._address, lambda: self._part(len(buffer)))
        buffer[: len(part)] = part
        self._place += len(part)
        return len(part)

    def close(self) -> None:
        self._drop()
        super().close()

    def _part(self, count: int) -> bytes:
        count = min(count, self._size - self._place)
        if count <= 0:
            return b""
        try:
            file = self._opened()
            file.seek(self._place)
            part = file.read(count)
            if not part:
                raise ConnectionError(f"it ended at byte {self._place} of {self._size}")
        except BaseException:
            self._drop()
            raise
        return bytes(part)

    def _opened(self) -> Any:
        if self._file is None:
            self._system, path = _system(self._address)
            self._file = self._system.open(path, "rb", block_size=_BLOCK, cache_type="readahead")
        return self._file

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(Exception):  # of a connection that is broken
                file.close()


def _system(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path on it."""
    from fsspec.core import url_to_fs

    options: dict[str, Any] = {}
    for protocol in {"http", "https"} & {hop.partition("://")[0] for hop in address.split("::")}:
        from aiohttp import ClientTimeout

        timeout = ClientTimeout(total=None, sock_connect=_STALLED, sock_read=_STALLED)
        options[protocol] = {"client_kwargs": {"timeout": timeout, "trust_env": True}}  # proxies, ~/.netrc
    system, path = url_to_fs(address, **options)
    return system, path


def _persistently(address: str, act: Callable[[], T]) -> T:
    """What ``act`` returns, tried again while it fails for a reason that may pass; else UsageError."""
    for tries in itertools.count(1):
        try:
            return act()
        except Exception as error:  # each file system has errors of its own
            if tries > len(WAITS) or not _may_pass(error):
                raise UsageError(f"{shown(address)} cannot be read: {_reason(address, error, tries)}") from error
            if tries > 1:
                _LOG.warning("%s: %s; asking again", shown(address), _cause(error))
            time.sleep(WAITS[tries - 1])
    raise AssertionError("it counts without end")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _status(error: Exception) -> int | None:
    """The HTTP status that is behind an error, by the attributes that aiohttp, httpx, requests and botocore have."""
    for cause in _causes(error):
        response = getattr(cause, "response", None)
        own = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
        for status in (getattr(cause, "status", None), getattr(response, "status_code", None), own):
            if isinstance(status, int):
                return status
    return None


def _may_pass(error: Exception) -> bool:
    status = _status(error)
    if status is not None:
        return status in _PASSES
    # fsspec says FileNotFoundError of an HTTP server that cannot be reached, too: the first cause is what it is.
    first = list(_causes(error))[-1]
    if "Credentials" in type(first).__name__:  # botocore's, whose base says nothing
        return False
    return not isinstance(first, (FileNotFoundError, PermissionError, ImportError, ValueError, NotImplementedError))


def _reason(address: str, error: Exception, tries: int) -> str:
    protocol = re.split(r"://|::", address)[0]
    status = _status(error)
    if isinstance(error, ImportError):
        package = _PACKAGES.get(protocol)
        return f"{protocol}:// needs {f'`pip install {package}`' if package else f'another package ({error})'}"
    if status in (401, 403) or isinstance(error, PermissionError) or "Credentials" in type(error).__name__:
        given = _CREDENTIALS.get(protocol, "the environment")
        return f"access is denied{f' (HTTP {status})' if status else ''}; give credentials by {given}"
    if status in (404, 410) or (isinstance(error, FileNotFoundError) and status is None and not _may_pass(error)):
        return f"there is none such{f' (HTTP {status})' if status else ''}; check the address, or put the file back"
    if re.search("range requests|streaming HTTP file", str(error)):
        return "its server gives files as a whole alone, without HTTP ranges; copy them to storage that has them"
    if not _may_pass(error):
        return _cause(error)
    return f"{_cause(error)}, in {tries} tries; check the network and the server, then go on with --resume"


def _cause(error: Exception) -> str:
    """One line of what was wrong at first, without secrets."""
    text = next((text for cause in reversed(list(_causes(error))) if (text := str(cause).strip())), "")
    return shown(text.partition("\n")[0])[:200] or type(error).__name__

"""The dated record of one measurement, and the ``results.json`` that collects them next to the weights."""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ssl_hub.atomic import replace_file
from ssl_hub.codec import plain
from ssl_hub.errors import UsageError
from ssl_hub.model import files
from ssl_hub.model.files import RESULTS_FILE as RESULTS_FILE
from ssl_hub.model.reading import read_json

NUMBERS = {"k": (int,), "bank_size": (int,), "train_size": (int,), "temperature": (int, float)}  # of settings
MEASURED_WITH = ("ssl_hub", "torch", "timm")

_PAIR = re.compile(r"\[\n\s+([\d.]+),\n\s+([\d.]+)\n\s+\]")  # one line each: a thousand classes have as many of them


def now() -> str:
    """The date of what happens now, in UTC, as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def installed_versions() -> dict[str, str]:
    """Versions of the packages that a number depends on, from their metadata; nothing is imported."""
    versions = {}
    for package in MEASURED_WITH:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


@dataclass(frozen=True, kw_only=True)
class Result:
    """One measured number, with everything that has to stand beside it.

    ``metric`` is "top1" or "top5" and ``value`` its percentage, 0 to 100; ``protocol`` is "knn", "finetune" or
    "linear-" and the name of a probe's, such as "linear-cached". ``settings`` holds what the protocol was run with (k,
    temperature, bank size, layer, strength, ...); ``seed`` is None where the protocol draws nothing. ``collapsed``
    marks a model whose features had collapsed when its training ended. numpy scalars and 0-d tensors become plain
    numbers.

    What follows came later, and older files lack it. ``images`` were judged; ``interval`` is the 95 % interval of the
    percentage over such images; ``per_class`` has the images that were right and all images of each class, of top-1.
    ``overlap`` counts the judged images that the classifier was fitted to too, None where nobody looked, and
    ``published`` says that those are two whole splits as their publisher made them. ``data`` has the fingerprints of
    the images that were ``judged`` and ``fitted`` to, ``backbone`` the hash of the weights, ``ran_on`` the hardware,
    threads, processes and seconds. ``outdated`` marks a number of weights that were trained on since.

    Raises UsageError where the value is not a finite percentage, or a setting has no exact place in JSON.
    """

    metric: str
    value: float
    dataset: str
    split: str
    protocol: str
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    collapsed: bool = False
    date: str = field(default_factory=now)
    versions: dict[str, str] = field(default_factory=installed_versions)
    images: int | None = None
    interval: tuple[float, float] | None = None
    per_class: dict[str, list[int]] = field(default_factory=dict)
    overlap: int | None = None
    published: bool = False
    data: dict[str, str] = field(default_factory=dict)
    backbone: str | None = None
    ran_on: dict[str, Any] = field(default_factory=dict)
    outdated: bool = False

    def __post_init__(self) -> None:
        where = f"{self.metric} of {self.protocol} on {self.dataset}/{self.split}"
        words = (self.metric, self.dataset, self.split, self.protocol)
        if not all(isinstance(word, str) for word in words) or not isinstance(self.settings, Mapping):
            raise UsageError(f"{where} is no result: its names must be text, and its settings an object")
        if not _is_date(self.date):
            raise UsageError(f"{where} is dated {self.date!r}, expected a date such as 2026-01-31T12:00:00+00:00")
        whole_seed = self.seed is None or (isinstance(plain(self.seed, "seed"), int) and type(self.seed) is not bool)
        if not whole_seed or not isinstance(self.versions, Mapping) or type(self.collapsed) is not bool:
            raise UsageError(f"{where} is no result: expected a whole seed, versions by package, and collapsed or not")
        value = plain(self.value, where)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 100:
            raise UsageError(f"{where} is {value!r}, expected a percentage from 0 to 100")
        object.__setattr__(self, "value", float(value))
        object.__setattr__(self, "settings", plain(dict(self.settings), f"settings of {where}"))
        object.__setattr__(self, "seed", plain(self.seed, f"seed of {where}"))
        self._check_record(where)
        if self.interval is not None:  # a list where it comes from JSON
            object.__setattr__(self, "interval", (float(self.interval[0]), float(self.interval[1])))

    @property
    def when(self) -> datetime:
        """The date as a point in time, by which records are told to be newer; UTC where it names no zone."""
        date = datetime.fromisoformat(self.date)
        return date if date.tzinfo else date.replace(tzinfo=UTC)

    def _check_record(self, where: str) -> None:
        """Raise UsageError where what stands beside the number is not what it is to be, as in a damaged file."""
        of_classes: list[Any] = list(self.per_class.values()) if _is_object(self.per_class) else [None]
        fitting = (
            all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in of_classes)
            and all(map(_is_count, (self.overlap or 0, *(count for pair in of_classes for count in pair))))
            and (self.images is None or (_is_count(self.images) and self.images > 0))
            and (self.interval is None or _are_numbers(self.interval))
            and all(map(_is_object, (self.data, self.ran_on)))
            and type(self.outdated) is bool
            and all(isinstance(word, str) for word in (*self.data.values(), self.backbone or ""))
        )
        if not fitting:
            raise UsageError(
                f"{where} has no record: images and overlap are numbers of images, interval two numbers, per_class two"
                " numbers of images for each class, data and ran_on objects"
            )
        plain(self.ran_on, f"ran_on of {where}")
        for name, kinds in NUMBERS.items():
            value = self.settings.get(name, 1)
            if type(value) not in kinds or value <= 0:
                raise UsageError(f"{where} has {name} {value!r} in its settings, expected a number above 0")


def interval_text(interval: tuple[float, float] | None, digits: int = 2) -> str:
    """``83.77 to 89.67``; empty where there is none."""
    return "" if interval is None else f"{interval[0]:.{digits}f} to {interval[1]:.{digits}f}"


def _is_date(value: Any) -> bool:
    try:
        datetime.fromisoformat(value)
    except (ValueError, TypeError):
        return False
    return True


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _are_numbers(value: Any) -> bool:
    """Whether these are the two ends of an interval."""
    is_pair = isinstance(value, (list, tuple)) and len(value) == 2
    return is_pair and all(isinstance(end, (int, float)) for end in value) and 0 <= value[0] <= value[1] <= 100


def append_results(folder: Path, results: Sequence[Result]) -> None:
    """Add records to ``folder/results.json``, which is made as needed. The folder is not: where a release was removed
    meanwhile, none of a results.json alone is to stand in its place.

    A record with the same metric, dataset, split, protocol, settings and seed, and of images that are not known to be
    others, replaces the older one in its place.
    The file is replaced whole: a reader, or a crash, sees the old list or the new one. Keys that a newer version wrote
    survive. Raises UsageError where an existing file is not a list of results, or the folder is gone.
    """
    folder = Path(folder)
    records = _read_records(folder / RESULTS_FILE)
    places: dict[str, list[int]] = {}
    for place, record in enumerate(records):
        places.setdefault(_identity(record), []).append(place)
    for result in results:
        record = asdict(result)
        same = places.setdefault(_identity(record), [])
        place = next((p for p in same if _may_be_of_the_same(record, records[p])), len(records))
        records[place : place + 1] = [record]
        same += [] if place in same else [place]
    _write(folder, records)


def mark_outdated(folder: Path) -> None:
    """Mark every number in a folder as one of weights that are there no more."""
    if records := _read_records(Path(folder) / RESULTS_FILE):
        _write(folder, [record | {"outdated": True} for record in records])


def _write(folder: Path, records: Sequence[Mapping[str, Any]]) -> None:
    text = _PAIR.sub(r"[\1, \2]", json.dumps(records, indent=2, allow_nan=False)) + "\n"
    replace_file(folder / RESULTS_FILE, text.encode())
    files.record(folder, RESULTS_FILE)


def check_results(folder: Path) -> None:
    """Raise UsageError where :func:`append_results` would fail on a release, or put a number beside weights that are
    not those that were trained: to be found before the work whose result it would be."""
    folder = Path(folder)
    read_results(folder)
    files.check_unchanged(folder, (files.CONFIG, files.MODEL, RESULTS_FILE))


def read_results(folder: Path) -> list[Result]:
    """The records of ``folder/results.json`` in order; none where there is no file. Unknown, newer keys are ignored."""
    path = Path(folder) / RESULTS_FILE
    known = {f.name for f in fields(Result)}
    try:
        return [Result(**{k: v for k, v in record.items() if k in known}) for record in _read_records(path)]
    except UsageError as error:
        raise UsageError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def _identity(record: Mapping[str, Any]) -> str:
    names = ("metric", "dataset", "split", "protocol", "settings", "seed")
    return json.dumps([record.get(name) for name in names], sort_keys=True)


def _may_be_of_the_same(record: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two records may be of the same images: of two folders of one name they are not."""
    mine, its = record.get("data"), other.get("data")
    return not mine or not its or mine == its


def _read_records(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        records = read_json(path)
    except UsageError as error:
        raise UsageError(f"{path} must hold results: {error}; repair or remove the file") from None
    required = {"metric", "value", "dataset", "split", "protocol"}
    if not isinstance(records, list) or not all(isinstance(r, dict) and required <= r.keys() for r in records):
        raise UsageError(f"{path} must hold a list of results with {', '.join(sorted(required))}; repair or remove it")
    return records

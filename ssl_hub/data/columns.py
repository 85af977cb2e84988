"""The columns of a table that hold images and labels: which they are, and what is in them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ssl_hub.data.addresses import opened
from ssl_hub.data.decoding import decode, decode_array
from ssl_hub.data.splits import meaning
from ssl_hub.data.value_range import AUTO, ValueRange
from ssl_hub.errors import UsageError
from ssl_hub.registry import suggest

_IMAGE_NAMES = ("image", "img", "jpg", "png")
_LABEL_NAMES = ("label", "labels", "fine_label", "target", "targets", "class", "cls", "y")

_SPLIT_NAMES = ("split", "subset", "partition", "set", "fold", "phase")
_TEXT = ("string", "large_string", "string_view")
_ENCODED = ("binary", "large_binary", "string")  # bytes of an image file, or its path
_LABELS = "whole numbers, text, true or false, or a ClassLabel"


class Column:
    """The images of one column of a ``datasets.Dataset``, whose rows hold encoded bytes or a file's path."""

    def __init__(self, rows: Any, column: str, where: str, values: ValueRange = AUTO) -> None:
        self.rows = rows
        self.column = column
        self.where = where
        self.values = values

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, position: int) -> Image.Image:
        return decode(*self.stored(position), self.values)

    def array(self, position: int) -> NDArray[np.uint8]:
        return decode_array(*self.stored(position), self.values)

    def stored(self, position: int) -> tuple[str | bytes, str]:
        """Bytes of a file or its path, and what to call it."""
        cell = self.rows[position][self.column]
        name = f"image {position} of {self.where}"
        if cell is None or (cell["bytes"] is None and cell["path"] is None):
            raise UsageError(f"{name} is missing; remove the row")
        if cell["path"]:
            name += f" ({Path(cell['path']).name})"
        return cell["path"] if cell["bytes"] is None else cell["bytes"], name

    def origins(self) -> Iterator[Hashable]:
        """What names each row whatever is opened."""
        return ((self.where, position) for position in range(len(self)))

    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each image, which the table knows without reading them; -1 where a row has none."""
        return np.array([size for structs in self._cells() for size in _sizes(structs)], np.int64)

    def names(self) -> Sequence[str]:
        """Each row's file name, empty where it has none. Images themselves are not read."""
        return [path or "" for structs in self._cells() for path in structs.field("path").to_pylist()]

    def _cells(self) -> Iterator[Any]:
        """The rows in order, as arrays of structs; in chunks as they lie, for joining them would copy the images."""
        tables = self.rows.with_format("arrow").iter(batch_size=1024)
        return (chunk for table in tables for chunk in table.column(self.column).chunks)


def _sizes(structs: Any) -> list[int]:
    """Of each cell the bytes that it holds, or those of the file that it names."""
    from pyarrow import compute

    lengths = compute.binary_length(structs.field("bytes")).to_pylist()
    paths = structs.field("path").to_pylist() if None in lengths else [None] * len(lengths)
    return [_file_size(path) if size is None else size for size, path in zip(lengths, paths, strict=True)]


def _file_size(path: str | None) -> int:
    try:
        return -1 if path is None else Path(path).stat().st_size
    except OSError:
        return -1


def encoded(rows: Any, column: str) -> Any:
    """The same rows with bytes of files in ``column`` in place of decoded images."""
    from datasets import Image as ImageFeature

    return rows.cast_column(column, ImageFeature(decode=False))


def holds_no_images(file: str) -> bool:
    """Whether a parquet file, here or at an address, has no column that could be of images, as where it says something
    of images elsewhere. Of a damaged one False: it is named where it is read."""
    from pyarrow import parquet

    try:
        with opened(file) as stream:
            kinds = [str(kind) for kind in parquet.read_schema(stream).types]
    except (OSError, ValueError):  # pyarrow's are ValueErrors
        return False
    return not any("binary" in kind or "struct" in kind for kind in kinds)


def find_image_column(features: Any, named: str | None, where: str) -> str:
    """The one column of images, or ``named``, where it is one; else :class:`UsageError` listing the columns.

    Of several, one of a usual name counts. A column of lists of images is none.
    """
    from datasets import Image as ImageFeature

    def is_struct(feature: Any) -> bool:
        return isinstance(feature, dict) and set(feature) == {"bytes", "path"}

    typed = [c for c, feature in features.items() if isinstance(feature, ImageFeature)]
    structs = [c for c, feature in features.items() if is_struct(feature)]
    inner = {c: getattr(feature, "feature", None) for c, feature in features.items()}
    lists = [c for c, one in inner.items() if isinstance(one, ImageFeature) or is_struct(one)]
    if named in lists or (named is None and lists and not typed + structs):
        raise UsageError(
            f"column {named or lists[0]!r} of {where} holds lists of images, expected one image in a row; write a row "
            "for each of them"
        )
    if named is not None:
        encoded = [c for c, f in features.items() if getattr(f, "dtype", "") in _ENCODED]
        if _existing(features, named, "image", where) not in typed + structs + encoded:
            raise UsageError(f"column {named!r} of {where} holds no images; columns: {_listed(features)}")
        return named
    return _only(typed or structs, _IMAGE_NAMES, "image", features, where)


def find_label_column(rows: Any, named: str | None, image_column: str, where: str) -> str | None:
    """The column of labels, or ``named``: a ``ClassLabel``, else one of a usual name whose values name classes.

    Raises :class:`UsageError` where ``named`` does not exist or its values are such as numbers with fractions or lists;
    and where several columns have usual names and do not say the same.
    """
    from datasets import ClassLabel

    features = rows.features
    if named is not None:
        feature = features[_existing(features, named, "label", where)]
        if not _names_classes(feature):
            raise UsageError(
                f"label column {named!r} of {where} is {_type(feature)}, expected {_LABELS}; set data.label_column to "
                f"another, or to none; columns: {_listed(features)}"
            )
        return named
    typed = [c for c, feature in features.items() if isinstance(feature, ClassLabel)]
    if typed:
        return _only(typed, _LABEL_NAMES, "label", features, where)
    usual = [c for c in _usual(features) if c != image_column]
    usable = [c for c in usual if _names_classes(features[c])]
    if usable and (usable[0] != usual[0] or any(not _say_the_same(rows, usable[0], other) for other in usable[1:])):
        return _only(usual, (), "label", features, where)
    return usable[0] if usable else None


def _say_the_same(rows: Any, one: str, other: str) -> bool:
    """Whether two columns put the rows into the same classes, whatever they call them."""
    columns = [rows.select_columns([name]).with_format("arrow")[:].column(name).to_pylist() for name in (one, other)]
    return len({*zip(*columns, strict=True)}) == len({*columns[0]}) == len({*columns[1]})


def unusable_labels(features: Any) -> dict[str, str]:
    """Columns with the usual name of labels that hold something else, and what."""
    return {c: _type(features[c]) for c in _usual(features) if not _names_classes(features[c])}


def _usual(features: Any) -> list[str]:
    """Columns with the usual name of labels, in any case, the most usual first. A ``y`` beside an ``x`` is a place."""
    names = [(c.lower(), c) for c in features]
    beside_x = any(lower == "x" for lower, _ in names)
    return [c for usual in _LABEL_NAMES for lower, c in names if lower == usual and not (usual == "y" and beside_x)]


def split_column(rows: Any) -> tuple[str, list[str]] | None:
    """A column that says of each row which split it is of, and its values, where they are of several."""
    for name, feature in rows.features.items():
        if name.lower() in _SPLIT_NAMES and getattr(feature, "dtype", "") in _TEXT:
            said = [str(value) for value in rows.select_columns([name]).with_format("arrow")[:].column(name).unique()]
            if len({meaning(value) for value in said} - {None}) > 1:
                return name, sorted(said)
    return None


def _names_classes(feature: Any) -> bool:
    from datasets import ClassLabel, Value

    whole = isinstance(feature, Value) and (feature.dtype in (*_TEXT, "bool") or "int" in feature.dtype)
    return whole or isinstance(feature, ClassLabel)


def _existing(features: Any, named: str, kind: str, where: str) -> str:
    if named not in features:
        raise UsageError(
            f"{where} has no {kind} column {named!r}{suggest(named, features)}; columns: {_listed(features)}"
        )
    return named


def _only(candidates: list[str], usual: tuple[str, ...], kind: str, features: Any, where: str) -> str:
    preferred = [c for c in usual if c in candidates]
    if len(candidates) == 1 or preferred:
        return preferred[0] if preferred else candidates[0]
    problem = f"several {kind} columns ({', '.join(candidates)})" if candidates else f"no {kind} column"
    raise UsageError(f"{where} has {problem}; set data.{kind}_column to one of its columns: {_listed(features)}")


def _listed(features: Any) -> str:
    return ", ".join(f"{name} ({_type(feature)})" for name, feature in features.items())


def _type(feature: Any) -> str:
    """``int64``, ``Image``, or ``list of float32``."""
    if isinstance(feature, dict):
        return "dict"
    inner = getattr(feature, "feature", None)
    return f"list of {_type(inner)}" if inner is not None else str(getattr(feature, "dtype", type(feature).__name__))


def classes_and_labels(rows: Any, column: str) -> tuple[list[str], NDArray[np.int64]]:
    """Class names and int64 labels ``[N]``, -1 where there is none."""
    from datasets import ClassLabel

    values = rows.select_columns([column]).with_format("arrow")[:].column(column)
    feature = rows.features[column]
    if isinstance(feature, ClassLabel):
        labels = values.fill_null(-1).to_numpy().astype(np.int64)
        return list(feature.names), np.where(labels < 0, -1, labels)
    plain = values.to_pylist()
    known = sorted({v for v in plain if v is not None and not (isinstance(v, int) and v < 0)})
    index = {value: position for position, value in enumerate(known)}
    return [str(v) for v in known], np.array([index.get(v, -1) for v in plain], np.int64)


def aligned(
    classes: list[str], labels: NDArray[np.int64], reference: list[str], where: str
) -> tuple[list[str], NDArray[np.int64]]:
    """Labels that count in ``reference``'s order."""
    if classes == reference:
        return reference, labels
    position = {name: index for index, name in enumerate(reference)}
    for index in np.unique(labels[labels >= 0]):
        if classes[index] not in position:
            raise UsageError(
                f"{where} has class {classes[index]!r}, which split 'train' lacks; "
                f"'train' has {len(reference)} classes: {', '.join(reference[:10])}"
                f"{', ...' if len(reference) > 10 else ''}"
            )
    mapping = np.array([*(position.get(name, -1) for name in classes), -1], np.int64)  # the last is that of label -1
    return reference, mapping[labels]

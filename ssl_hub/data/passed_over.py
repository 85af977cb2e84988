"""What was found beside the images and not taken, counted by the reason, with an example of each; and what else a
layout has that is to be known."""

from __future__ import annotations

from typing import Any, NamedTuple

from ssl_hub.data.paths import shown

NO_CLASSES = "column that names no classes"  # the reason for a column of labels that are none
BESIDE_SPLITS = "beside the split folders"  # the reason for a folder of images
NAMES_SPLITS = "column that names splits"  # the reason for one whose rows are of several
AROUND_CLASSES = "folder around the classes"  # which is none of them
ALIKE_BELOW = "folders of the same names in all classes"  # these may be splits
MISSING = "missing"  # for files that are not there, and are by the names of the others: train-00000-of-00002


class Some(NamedTuple):
    """How many, and the first of them by name."""

    number: int
    example: str


class PassedOver(dict[str, Some]):
    """Reasons, such as ``.txt`` or ``hidden``, to how many files or folders were passed over for them."""

    def add(self, reason: str, example: str, number: int = 1) -> None:
        example = shown(example)
        seen, first = self.get(reason, (0, example))
        self[reason] = Some(seen + number, min(first, example))

    def add_all(self, other: PassedOver) -> None:
        for reason, some in other.items():
            self.add(reason, some.example, some.number)

    def as_json(self) -> dict[str, Any]:
        return {reason: some._asdict() for reason, some in self.items()}

    def words(self, most: int = 3) -> str:
        """``12 .txt (a/notes.txt), 1 hidden (.DS_Store)``, the most frequent first."""
        ordered = sorted(self.items(), key=lambda item: -item[1].number)[:most]
        return ", ".join(f"{some.number} {reason} ({some.example})" for reason, some in ordered)

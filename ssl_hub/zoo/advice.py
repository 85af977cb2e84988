"""What is wrong with a dataset, by its inventory, in the order of harm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ssl_hub.data.endings import IMAGES_ELSEWHERE
from ssl_hub.data.passed_over import ALIKE_BELOW, AROUND_CLASSES, BESIDE_SPLITS, MISSING, NAMES_SPLITS
from ssl_hub.data.splits import alike

LEAST_USED = 1 / 8
"""Share of the range of values below which images are a few grey levels."""

FEWEST_IMAGES = 8  # that four batches of two are made of


class Finding(NamedTuple):
    """Something to know, and what to do about it. ``harm`` is 3 (numbers or training will be wrong) to 0 (a note)."""

    harm: int
    text: str
    fix: str = ""


def findings(survey: Mapping[str, Any]) -> list[Finding]:
    """Of a :func:`~ssl_hub.data.survey.survey`, the most harmful first."""
    found = [*_of_splits(survey), *_of_duplicates(survey)]
    for split, known in opened(survey):
        found += [*_of_values(split, known), *_of_files(split, known), *_of_classes(split, known)]
    return sorted({finding: None for finding in found}, key=lambda finding: -finding.harm)


def while_training(split: str, inventory: Mapping[str, Any]) -> list[str]:
    """What a run should say of its data as it starts: that by which its numbers will be wrong, each in a line."""
    found = [*_of_values(split, inventory), *_of_files(split, inventory)]
    return [f"{finding.text}; {finding.fix}" for finding in found if finding.harm > 1]


def opened(survey: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(split, known) for split, known in survey["splits"].items() if "error" not in known]


def _of_splits(survey: Mapping[str, Any]) -> Iterator[Finding]:
    train = survey["splits"].get("train", {})
    if not survey["stream"] and train.get("images", FEWEST_IMAGES) < FEWEST_IMAGES:
        yield Finding(3, f"split 'train' has {counted(train['images'])}", f"training takes {FEWEST_IMAGES} or more")
    for split, known in survey["splits"].items():
        if "error" in known:
            yield Finding(3, f"split {split!r} cannot be opened: {known['error']}")
        elif known["called"] not in ("", split):
            yield Finding(0, f"{known['called']!r} is taken as split {split!r}")
    for split, several in alike(survey["splits"]).items():
        if len(several) > 1:
            text = f"{', '.join(map(repr, several))} all speak of {split!r}, and each is a split of its own"
            joined = f"data.{_setting_of(split)}={'+'.join(several)}"
            yield Finding(2, text, f"where they belong together, join them: {joined}")
    if "train" not in survey["splits"]:
        names = ", ".join(survey["splits"])
        fix = f"set data.pretrain_split to one of {names}, or to several joined by '+'"
        yield Finding(2, f"there is no split 'train'; there are {names}", fix)
    elif survey["stream"]:
        return
    elif all(known["classes"] is None for _, known in opened(survey)):
        text = "no image has a label: that serves pre-training, and nothing can be measured on it"
        yield Finding(0, text, "give labelled images by --monitor-data while it trains, or to probe and knn by --data")
    elif len(survey["splits"]) == 1:
        yield Finding(0, "there is no held-out split", "lay out test/ beside train/, or probe with --folds 5")


def _setting_of(split: str) -> str:
    return "pretrain_split" if split == "train" else "test_split"


def _of_duplicates(survey: Mapping[str, Any]) -> Iterator[Finding]:
    if survey["duplicates"] is None:
        if not survey["stream"]:
            yield Finding(0, "whether images are in several splits was not looked into", "--thorough does")
        return
    for pair in survey["duplicates"]["across"]:
        one, other = pair["splits"]
        first, second = pair["examples"][0]
        yield Finding(
            3,
            f"{counted(pair['images'])} of {other!r} in {one!r} as well ({second} is {first})",
            f"an accuracy on {other!r} is too high by them: take them out of one of the two",
        )
    for split, again in survey["duplicates"]["within"].items():
        first, second = again["examples"][0]
        text = f"{counted(again['images'])} of {split!r} with the content of another of it ({second} is {first})"
        yield Finding(1, text, "each counts as often as it is there")


def _of_values(split: str, known: Mapping[str, Any]) -> Iterator[Finding]:
    seen = known["looked_at"]
    bad = seen["unreadable"]
    if bad["number"]:
        yield Finding(
            3,
            f"{bad['number']:,} of {seen['images']:,} images of {split!r} that were looked at cannot be read: "
            f"{bad['examples'][0]}",
            "data.on_bad_image=skip puts others in their place",
        )
    if "values" not in seen:
        return
    low, high = seen["values"]
    of = f"images of {split!r} have values from {low:g} to {high:g}"
    black, white = seen["range"]
    if low == high:
        text = f"all {seen['images'] - bad['number']} images of {split!r} that were looked at hold {low:g} alone"
        yield Finding(3, text, "there is nothing to learn from: look at what wrote them")
    if goes_beyond(seen):
        fix = f"set data.range={suggested_range(seen)}"
        yield Finding(3, f"{of}, beyond the range from {black:g} to {white:g}", fix)
    elif is_dim(seen):
        yield Finding(
            2,
            dim_in_words(split, seen),
            f"set data.range={suggested_range(seen)}" if is_wide(seen) else "they are so as they are stored",
        )
    if seen["range_is_set"] and not is_wide(seen):
        yield Finding(2, f"data.range does nothing to {split!r}, whose images have 8 bits", "set data.range=auto")
    if is_wide(seen) and "8" in seen["bits"]:
        yield Finding(2, f"{split!r} mixes images of 8 bits and of more ({_by_kind(seen['bits'])} bits)",
                      "data.range applies to those of more alone: store all alike")  # fmt: skip
    if seen["frames"] > 1:
        text = f"images of {split!r} hold several frames or pages, up to {seen['frames']:,}, of which the first is used"
        yield Finding(2, text, "where the others are images too, store each as a file")
    if seen["shorter"][0] < 8:
        yield Finding(1, f"some images of {split!r} are {seen['shorter'][0]} pixels high or wide", "leave them out")
    if seen["longest_to_shortest"] > 4:
        text = f"some images of {split!r} are {seen['longest_to_shortest']:g} times as long as wide"
        yield Finding(1, text, "views and evaluation see their middle: cut them up")


def is_wide(seen: Mapping[str, Any]) -> bool:
    return not {"1", "8"}.issuperset(seen["bits"])


def dim_in_words(split: str, seen: Mapping[str, Any]) -> str:
    """What :func:`is_dim` found."""
    (low, high), (black, white) = seen["values"], seen["range"]
    return (
        f"images of {split!r} have values from {low:g} to {high:g}, {100 * seen['used']:.1f} % of the range from "
        f"{black:g} to {white:g}: they are nearly of one grey"
    )


def is_dim(seen: Mapping[str, Any]) -> bool:
    low, high = seen["values"]
    return bool(seen["used"] < LEAST_USED and high > low)


def goes_beyond(seen: Mapping[str, Any]) -> bool:
    """Whether images of more than 8 bits have values outside their range: of ``auto`` any, of one that was set more
    than single pixels."""
    black, white = seen["range"]
    low, high = seen["percentiles" if seen["range_is_set"] else "values"]
    spare = (white - black) / 100
    return is_wide(seen) and bool(low < black - spare or high > white + spare)


def suggested_range(seen: Mapping[str, Any]) -> str:
    """``data.range`` for images with these values: a number of bits where they are whole numbers from 0, else ends."""
    low, high = seen["values"]
    if low >= 0 and "float" not in seen["bits"]:
        bits = max(8, math.ceil(math.log2(high + 1)))
        if low < 2 ** (bits - 3):
            return str(bits)
    low, high = seen["percentiles"]
    return f"{low:.6g},{high:.6g}"


def of_what_was_left_out(split: str, passed_over: Mapping[str, Any]) -> Iterator[Finding]:
    """By what a source has passed over: files, folders and rows that are not in the split and may be meant to be; and
    what else its layout has."""
    for reason, some in passed_over.items():
        if reason == MISSING:
            text = f"by the names of the others, {some['number']:,} files of {split!r} are missing ({some['example']})"
            yield Finding(2, text, "what is there is taken for all of it")
        if reason == NAMES_SPLITS:
            text = f"rows of {split!r} are of several splits, by a column that is not read ({some['example']})"
            yield Finding(3, text, "write each split to a file called after it")
        if reason == BESIDE_SPLITS:
            text = f"folders of images beside the split folders left out: {some['number']:,} ({some['example']})"
            yield Finding(2, text, "where these are classes, move them; where one is a split, ask for it by its name")
        if reason == ALIKE_BELOW:
            fix = "where those are the classes, and these splits, call them train and test"
            yield Finding(2, f"the classes {some['example']}", fix)
        if reason == AROUND_CLASSES:
            yield Finding(0, f"all of split {split!r} lies in the folder {some['example']!r}, which is no class itself")
        if reason in IMAGES_ELSEWHERE:
            kind = f"files {reason}" if reason.startswith("without") else f"{reason} files"
            yield Finding(2, f"{kind} of {split!r} left out: {some['number']:,} ({some['example']})",
                          "where they are images, store them as PNG, TIFF or JPEG")  # fmt: skip


def _of_files(split: str, known: Mapping[str, Any]) -> Iterator[Finding]:
    yield from of_what_was_left_out(split, known["passed_over"])
    for reason in {".csv", ".json", ".jsonl"} & known["passed_over"].keys():
        if known["classes"] is None:
            example = known["passed_over"][reason]["example"]
            yield Finding(
                0, f"{split!r} has no labels; what {example} says is not read", "class folders or a table would"
            )
    beside = known.get("companions")
    if beside and beside["number"] < known["images"]:
        yield Finding(2, f"{counted(beside['number'])} of {split!r} called as masks are ({beside['example']})",
                      "they would be trained on: move them away")  # fmt: skip


def _of_classes(split: str, known: Mapping[str, Any]) -> Iterator[Finding]:
    classes = known["classes"]
    if not classes:
        return
    if known["unlabelled"]:
        yield Finding(1, f"{known['unlabelled']:,} of {known['images']:,} images of {split!r} have no label")
    if len(classes) == 1:
        fix = "an accuracy needs two or more; where the classes are the folders in it, give that folder"
        yield Finding(1, f"{split!r} has one class, {next(iter(classes))!r}", fix)
    if len(classes) > 1 and max(classes.values()) == 1:
        text = f"each image of {split!r} is a class of its own, {next(iter(classes))!r} for one"
        yield Finding(2, text, "what names images is no label: take another column (--label-column), or other folders")
    fewest, most = min(classes, key=classes.__getitem__), max(classes, key=classes.__getitem__)
    if len(classes) > 1 and classes[most] >= 20 * max(classes[fewest], 1):
        text = f"class {fewest!r} of {split!r} has {counted(classes[fewest])}, {most!r} {classes[most]:,}"
        yield Finding(1, text, "an accuracy is that of the large classes")


def counted(number: int) -> str:
    return f"{number:,} image{'s' * (number != 1)}"


def _by_kind(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} of {name}" for name, number in numbers.items())

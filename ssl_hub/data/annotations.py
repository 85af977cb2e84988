"""Folders and archives of pictures, and of what is drawn or said about them, by their names."""

from __future__ import annotations

from collections.abc import Collection

PICTURES = frozenset(("image", "images", "img", "imgs", "jpegimages"))
ABOUT_PICTURES = frozenset(
    ("annotation", "annotations", "label", "labels", "mask", "masks", "segmentation", "segmentationclass",
     "segmentationobject")
)  # fmt: skip


def pictures_and_annotations(folders: Collection[str]) -> tuple[str, str] | None:
    """One folder of each kind where these hold both, as ``images`` beside ``masks``."""
    lower = {name.lower(): name for name in folders}
    pictures, about = lower.keys() & PICTURES, lower.keys() & ABOUT_PICTURES
    return (lower[min(pictures)], lower[min(about)]) if pictures and about else None

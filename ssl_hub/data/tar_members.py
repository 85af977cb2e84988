"""The members of a tar file: whole ones, those that are images, and the sample and kind that their names say."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator

from ssl_hub.data.annotations import ABOUT_PICTURES, PICTURES, pictures_and_annotations
from ssl_hub.data.endings import IMAGES_ELSEWHERE, ending_of, image_endings, kind_of
from ssl_hub.data.splits import meaning, speaking_of_splits
from ssl_hub.errors import UsageError

_BEYOND = 2**16  # bytes after the mark of a tar file's end that are looked at; tools fill up to 10240


class Member(tarfile.TarInfo):
    """A member that is whole. ``tarfile`` takes a file that is cut off after one, or damaged there, to end with it."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Member:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            if archive.offset == 0:  # no tar file, or one that is compressed
                raise
            raise tarfile.ReadError(f"it is cut off or damaged at byte {archive.offset}: {error}") from None


def members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (member := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]  # else it remembers all that it has seen
        if not member.isdir():
            yield member
    if archive.fileobj is not None and archive.fileobj.read(_BEYOND).strip(b"\0"):
        raise tarfile.ReadError("something follows the mark of its end, as where tar files were joined; pack it anew")


def is_image(member: tarfile.TarInfo) -> bool:
    if _is_hidden(member) or ending_of(member.name) not in image_endings():
        return False
    if member.issym() or member.islnk():
        raise tarfile.ReadError(
            f"{member.name} is a link in it, without an image; pack with tar --dereference --hard-dereference"
        )
    return member.isfile()


def _is_hidden(member: tarfile.TarInfo) -> bool:
    return any(part.startswith(".") and part != "." for part in member.name.split("/"))


class WithoutImage:
    """The samples of one tar file that have no image that is read and a file that may be one, such as ``.heic``.

    Beside an image of the same sample such a file says something of it.
    """

    def __init__(self) -> None:
        self._key = ""
        self._has_image = False
        self._first: tuple[str, str] | None = None

    def add(self, member: tarfile.TarInfo, *, image: bool) -> tuple[str, str] | None:
        """The next member; of the sample before, where it was the last of such a one, the kind and the name."""
        if _is_hidden(member):
            return None
        key, ended = sample_of(member.name)[0], None
        if key != self._key:
            ended = self.ended()
            self._key, self._has_image, self._first = key, False, None
        self._has_image |= image
        if self._first is None and (kind := kind_of(member.name)) in IMAGES_ELSEWHERE:
            self._first = kind, member.name
        return ended

    def ended(self) -> tuple[str, str] | None:
        """The same of the last sample."""
        return None if self._has_image else self._first


class Folders:
    """The folders that images of one tar file lie in, as far as it was read: they are to be of one split."""

    def __init__(self, shard: str) -> None:
        self._shard = shard
        self._seen: set[str] = set()
        self._telling: dict[str, set[str]] = {}  # by the folder that they lie in

    def add(self, member: str) -> None:
        """Raises :class:`UsageError` where splits lie beside each other, or pictures beside what is drawn of them."""
        folder = member.rpartition("/")[0]
        if folder in self._seen:
            return
        self._seen.add(folder)
        above = ""
        for name in folder.split("/"):
            if meaning(name) or name.lower() in PICTURES | ABOUT_PICTURES:
                telling = self._telling.setdefault(above, set())
                telling.add(name)
                self._refuse(telling)
            above += name + "/"

    def _refuse(self, telling: set[str]) -> None:
        splits = speaking_of_splits(sorted(telling))
        if {"train"} < {*map(meaning, splits)}:
            raise UsageError(
                f"shard {self._shard} holds the splits {' and '.join(splits)}, and a tar file is of one; unpack it and "
                "set data.stream=false, or pack each split into files of its own"
            )
        if found := pictures_and_annotations(telling):
            raise UsageError(
                f"shard {self._shard} holds {found[0]!r} beside {found[1]!r}: pictures and what is drawn or said about "
                f"them; pack {found[0]!r} alone"
            )


# A kind begins with a letter and is one word: jpg, seg.png. What does not is of the name: 2024.01.02_a, v1.5mm, Mr. X.
_SAMPLE = re.compile(r"(.[^.]*(?:\.(?![a-z][\w-]*(?:\.|$))[^.]*)*)\.(.+)", re.IGNORECASE | re.DOTALL)


def sample_of(member: str) -> tuple[str, str]:
    """The sample's name and the kind of the image in it: ``a/s`` and ``seg.png``; numbers belong to the name."""
    folder, slash, base = member.rpartition("/")
    name = _SAMPLE.fullmatch(base)
    return (folder + slash + name[1], name[2].lower()) if name else (member, "")

"""The members of a tar file: whole ones, those that are images, and the sample and kind that their names say."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator

from ssl_hub.data.endings import ending_of, image_endings

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
    folders = member.name.split("/")
    if any(part.startswith(".") and part != "." for part in folders) or ending_of(folders[-1]) not in image_endings():
        return False
    if member.issym() or member.islnk():
        raise tarfile.ReadError(
            f"{member.name} is a link in it, without an image; pack with tar --dereference --hard-dereference"
        )
    return member.isfile()


def sample_of(member: str) -> tuple[str, str]:
    """The sample's name and the kind of the image in it: ``a/s`` and ``seg.png``; numbers belong to the name."""
    folder, slash, base = member.rpartition("/")
    name = re.fullmatch(r"([^.]+(?:\.\d+)*)\.(.+)", base)
    return (folder + slash + name[1], name[2].lower()) if name else (member, "")

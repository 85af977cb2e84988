"""Small encoded images and archives for tests."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from PIL import Image


def png(value: int, size: tuple[int, int] = (8, 8)) -> bytes:
    """A PNG file with ``value`` in every pixel."""
    stream = io.BytesIO()
    Image.new("RGB", size, (value, value, value)).save(stream, "PNG")
    return stream.getvalue()


def write_tar(path: Path, members: Mapping[str, bytes], mode: str = "w") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))

"""Small encoded images and archives for tests."""

import io
import struct
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image


def png(value: int, size: tuple[int, int] = (8, 8)) -> bytes:
    """A PNG file with ``value`` in every pixel."""
    stream = io.BytesIO()
    Image.new("RGB", size, (value, value, value)).save(stream, "PNG")
    return stream.getvalue()


def png16(pixels: np.ndarray) -> bytes:
    """A PNG file of 16 bits a channel, of uint16 ``[H, W, C]``; Pillow writes one channel alone."""
    height, width, channels = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n"
    return start + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def write_tar(path: Path, members: Mapping[str, bytes], mode: str = "w") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))

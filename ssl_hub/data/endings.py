"""Which files hold images or tables, by their endings: the one place that says so."""

from __future__ import annotations

import functools

from PIL import Image, ImageFile

TABLES = (".parquet", ".arrow")
ARCHIVES = (".tar", ".tgz", ".tar.gz")

# Files that hold images in some other way, so that leaving them out may be a mistake.
IMAGES_ELSEWHERE = frozenset(
    (".7z", ".arw", ".avi", ".bz2", ".cr2", ".cr3", ".czi", ".dcm", ".dicom", ".dng", ".gz", ".h5", ".hdf5", ".heic",
     ".heif", ".jxl", ".lif", ".mat", ".mov", ".mp4", ".nd2", ".ndpi", ".nef", ".nii", ".npy", ".npz", ".orf", ".pdf",
     ".rar", ".raw", ".rw2", ".svs", ".tgz", ".webm", ".xz", ".zip", "without an ending")
)  # fmt: skip
_TEXTS = frozenset(  # files without an ending that people lay beside images
    ("authors", "changelog", "changes", "citation", "copying", "copyright", "info", "licence", "license", "makefile",
     "manifest", "md5sum", "md5sums", "notice", "readme", "sha256sum", "sha256sums", "version")
)  # fmt: skip

_USUAL = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif")  # what a message names
_FIRST = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF")  # tried in this order, the rest after them

# EPS runs Ghostscript, another program, on the file; of MPEG only the header is read; IPTC wraps another file.
_NOT_SAFE = ("EPS", "MPEG", "IPTC")


@functools.cache
def image_formats() -> tuple[str, ...]:
    """Pillow's names of the formats that are decoded: all that it opens and decodes by itself, inside the process.

    Left out are those that it hands to another program (EPS), knows the header of alone (MPEG), or has a mere stub for
    that a plug-in must fill (BUFR, GRIB, HDF5, WMF). A format that a plug-in has registered, such as HEIF, counts.
    """
    Image.init()
    opened = [name for name, (factory, _) in Image.OPEN.items() if name not in _NOT_SAFE and not _is_stub(factory)]
    return (*(name for name in _FIRST if name in opened), *sorted(set(opened) - set(_FIRST)))


def _is_stub(factory: object) -> bool:
    return isinstance(factory, type) and issubclass(factory, ImageFile.StubImageFile)


@functools.cache
def image_endings() -> tuple[str, ...]:
    """Endings, lower case with their dots, of the files that are taken for images."""
    known = Image.registered_extensions()
    readable = set(image_formats())
    return tuple(sorted(ending for ending, name in known.items() if name in readable))


def expected_endings() -> str:
    """The endings of images, as an error message says them."""
    return f"{', '.join(_USUAL)} or another of the {len(image_endings())} endings that Pillow reads"


def ending_of(name: str) -> str:
    """``.jpg`` of ``a/B.JPG``; empty where there is none."""
    dot = name.rfind(".")
    return name[dot:].lower() if dot > name.rfind("/") + 1 else ""  # a tenth of what `os.path` takes


def kind_of(name: str) -> str:
    """What a file that is no image is passed over as: its ending, or what stands for none."""
    return ending_of(name) or ("text" if name.rpartition("/")[2].lower() in _TEXTS else "without an ending")

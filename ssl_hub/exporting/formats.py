"""The formats of exported files: what writes one, and what runs it again."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ssl_hub.errors import UsageError
from ssl_hub.exporting.program import Program
from ssl_hub.registry import Registry

TRACED = 2  # images in the batch that is traced: torch.export takes a size of 1 for a fixed one
INPUT = "images"
ABOUT = "ssl_hub"  # the key of what the file says of itself
ONE_FILE = 2**31 - 2**20  # bytes: protobuf holds no more

Run = Callable[[Tensor], list[Tensor]]


class Format(NamedTuple):
    ending: str
    write: Callable[[Program, Tensor, Path, str], None]  # program, images to trace, where to, what it says of itself
    open: Callable[[Path], Run]  # a file to what runs it
    runtime: Callable[[], str]  # what that is, with its version
    check: Callable[[Program], None] = lambda program: None  # raises UsageError before any work


FORMATS: Registry[Format] = Registry("export format")


def _needed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(
            f"ONNX needs {name}, which is not installed: pip install 'ssl_hub[export]'; torch-export and torchscript"
            " need nothing more"
        ) from None


def _check_onnx(program: Program) -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        _needed(name)
    size = sum(tensor.nbytes for tensor in program.state_dict().values())
    if size > ONE_FILE:
        raise UsageError(f"the weights are {size / 2**30:.1f} GiB, and an ONNX file holds 2; use torch-export")


def _write_onnx(program: Program, images: Tensor, path: Path, about: str) -> None:
    try:
        made = _made_onnx(program, images)
    except Exception:
        with _plain_attention(program) as changed:
            if not changed:
                raise
            made = _made_onnx(program, images)
    made.model.metadata_props[ABOUT] = about
    made.save(path, external_data=False)


@contextmanager
def _plain_attention(program: Program) -> Iterator[int]:
    """Attention of timm's layers as products and a softmax; gives how many had it fused. torch's exporter takes fused
    attention of four dimensions alone, and Hiera's has five."""
    fused: list[Any] = [module for module in program.modules() if getattr(module, "fused_attn", False) is True]
    for module in fused:
        module.fused_attn = False
    try:
        yield len(fused)
    finally:
        for module in fused:
            module.fused_attn = True


def _made_onnx(program: Program, images: Tensor) -> torch.onnx.ONNXProgram:
    made = torch.onnx.export(
        program, (images,), dynamo=True, verbose=False, input_names=[INPUT], output_names=program.names,
        dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
    )  # fmt: skip
    assert made is not None
    return made


def _open_onnx(path: Path) -> Run:
    session = _needed("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda images: [torch.from_numpy(array) for array in session.run(None, {INPUT: images.numpy()})]


def _write_exported(program: Program, images: Tensor, path: Path, about: str) -> None:
    made = torch.export.export(program, (images,), dynamic_shapes={"images": {0: torch.export.Dim("batch")}})
    with path.open("wb") as file:  # by its name alone, torch would want .pt2
        torch.export.save(made, file, extra_files={ABOUT: about})


def _open_exported(path: Path) -> Run:
    with path.open("rb") as file:
        module = torch.export.load(file).module()
    return lambda images: list(module(images))


class _Checked(nn.Module):
    """What was traced, for nothing but images as they were: what a trace made of others would be wrong without a word.
    The other formats see to that themselves."""

    def __init__(self, traced: nn.Module, size: int, is_byte: bool) -> None:
        super().__init__()
        self.traced, self.size, self.is_byte = traced, size, is_byte

    def forward(self, images: Tensor) -> Any:  # a tuple of as many as the program's
        if images.dim() != 4 or images.size(1) != 3 or images.size(2) != self.size or images.size(3) != self.size:
            raise ValueError(f"images are {images.shape}, expected [batch, 3, {self.size}, {self.size}]")
        if (images.dtype == torch.uint8) != self.is_byte:
            raise ValueError("images are of another type: uint8 with the normalisation inside, float with it beside")
        return self.traced(images)


def _write_script(program: Program, images: Tensor, path: Path, about: str) -> None:
    traced: Any = torch.jit.trace(program, (images,), check_trace=False)  # the whole is checked, in other batches
    checked: Any = torch.jit.script(_Checked(traced, program.size, program.kind == "uint8").eval())
    with path.open("wb") as file:
        torch.jit.save(checked, file, _extra_files={ABOUT: about})


def _open_script(path: Path) -> Run:
    with path.open("rb") as file:
        module: Any = torch.jit.load(file, map_location="cpu")
    return lambda images: list(module(images))


def _torch() -> str:
    return f"torch {torch.__version__}"


FORMATS.add(
    "onnx",
    Format(".onnx", _write_onnx, _open_onnx, lambda: f"onnxruntime {_needed('onnxruntime').__version__}", _check_onnx),
)
FORMATS.add("torch-export", Format(".pt2", _write_exported, _open_exported, _torch))
FORMATS.add("torchscript", Format(".pt", _write_script, _open_script, _torch))


def write(kind: str, program: Program, images: Tensor, path: Path, about: str) -> None:
    """Write ``program`` as a file of this format. Raises UsageError where the architecture cannot be."""
    try:
        with quiet(), torch.no_grad():
            FORMATS[kind].write(program, images, path, about)
    except (UsageError, OSError):
        raise
    except Exception as error:  # tracing meets whatever an architecture does, and each exporter says so in its own way
        others = " or ".join(name for name in FORMATS.names() if name != kind)
        raise UsageError(f"this architecture cannot be written as {kind} ({_told(error)}); try {others}") from error


def _told(error: Exception) -> str:
    """The first line of the cause: exporters wrap it in advice to those who write them."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or ['no word'])[0][:200]}"


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings of exporters and runtimes, which are about their own innards."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)

"""What to say of a checkpoint that only running its own code would bring back. It is looked at, and nothing is made.

A pickle is a program for a small machine with a stack. Its instructions are followed here with names in the place of
values, so that it is known which keys a checkpoint has and which classes it asks for.
"""

from __future__ import annotations

import pickletools
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

LIGHTNING = "pytorch-lightning_version"  # a key of every checkpoint that PyTorch Lightning writes
# The first part of a class's module, and what of its project writes the tensors alone.
OPENMMLAB = "`python tools/model_converters/publish_model.py FILE weights.pth` of mmpretrain"
VISSL = "`python extra_scripts/convert_vissl_to_torchvision.py --model_url_or_file FILE` of VISSL"
TOOLS = dict.fromkeys(("mmengine", "mmcv", "mmpretrain", "mmselfsup", "mmcls"), OPENMMLAB)
TOOLS |= dict.fromkeys(("vissl", "classy_vision"), VISSL)
KEYS = {
    "state_dict", "model_state_dict", "model", "net", "network", "teacher", "student", "online", "target",
    "state_dict_ema", "model_ema", "ema",
}  # fmt: skip
MOST = 1_000_000  # instructions that are followed


class _Keys(dict[str, None]):
    """A dictionary of the pickle: the keys that are text."""


def way_out(path: Path) -> str:
    """Which tool of its project, or which line, saves the weights of a checkpoint alone. Runs nothing of it."""
    made, modules = _top(path)
    for module in modules:
        if (tool := TOOLS.get(module.split(".")[0])) is not None:
            return f"{tool} writes one without it, where that is installed"
    if not isinstance(made, _Keys):
        line = "torch.save(torch.load(FILE, weights_only=False).state_dict(), 'weights.pt')"
        return f"it is a whole model: save its weights alone, where its code is installed: {line}"
    keys = [key for key in made if key in KEYS]
    if not keys:
        listed = ", ".join(repr(key) for key in list(made)[:6])
        return f"save what of it are weights alone, where its code is installed; its keys are {listed}"
    line = f"torch.save(torch.load(FILE, weights_only=False)[{keys[0]!r}], 'weights.pt')"
    if keys[1:]:  # their names say which is which
        line = f"c = torch.load(FILE, weights_only=False); torch.save({{k: c[k] for k in {keys}}}, 'weights.pt')"
    whose = "PyTorch Lightning wrote it; save" if LIGHTNING in made else "save"
    return f"{whose} its weights alone, where its code is installed: {line}"


def _top(path: Path) -> tuple[Any, list[str]]:
    """The outermost value of what ``torch.save`` wrote, and the modules of the classes in it, as far as it can be
    followed."""
    modules: list[str] = []
    made: Any = _Keys()
    with suppress(OSError, ValueError, KeyError, IndexError, zipfile.BadZipFile, NotImplementedError):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                name = next(name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl")
                with archive.open(name) as file:
                    return _followed(file, modules), modules
        with path.open("rb") as file:
            for _ in range(3):  # a magic number, the version of the format, and the machine
                _followed(file, [])
            made = _followed(file, modules)
    return made, modules


def _followed(file: IO[bytes], modules: list[str]) -> Any:
    """The value that a pickle makes: text as it is, a dictionary as its keys, anything else as None."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    mark = object()

    def down_to_mark() -> list[Any]:
        place = len(stack) - 1 - stack[::-1].index(mark)
        above = stack[place + 1 :]
        del stack[place:]
        return above

    for count, (operation, argument, _) in enumerate(pickletools.genops(file)):
        name = operation.name
        if name == "STOP" or count == MOST:
            break
        if name == "MARK":
            stack.append(mark)
        elif name in ("EMPTY_DICT", "DICT"):
            stack.append(_Keys(_texts(down_to_mark()[::2])) if name == "DICT" else _Keys())
        elif name in ("SETITEM", "SETITEMS"):
            items = down_to_mark() if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            if isinstance(stack[-1], _Keys):
                stack[-1].update(_texts(items[::2]))
        elif name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
            memo[len(memo) if argument is None else int(argument)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(str(argument))])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            module, word = str(argument).split(" ") if name == "GLOBAL" else (stack.pop(-2), stack.pop())
            modules.append(str(module))
            stack.append((module, word))
        elif name == "REDUCE":
            _, called = stack.pop(), stack.pop()
            stack.append(_Keys() if called == ("collections", "OrderedDict") else None)
        else:
            before = operation.stack_before
            if pickletools.markobject in before:
                down_to_mark()
                before = before[: before.index(pickletools.markobject)]
            del stack[len(stack) - len(before) :]
            text = isinstance(argument, str) and "UNICODE" in name
            stack.extend(argument if text else None for _ in operation.stack_after)
    return stack[-1]


def _texts(keys: list[Any]) -> dict[str, None]:
    return {key: None for key in keys if isinstance(key, str)}

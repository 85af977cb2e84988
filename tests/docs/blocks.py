"""The code blocks of a Markdown page: finding them, and running them as a reader would.

A page's blocks run in order, in one folder and one process, offline, with an empty store. Two things differ from what
a reader gets, so that a page takes seconds:

- the built-in digits are every third of them, and their recipes train for :data:`EPOCHS` epochs instead of 60, or as
  many as the page says;
- ``ssl-hub``, ``python FILE`` and ``accelerate launch -m ssl_hub`` run in this process rather than in one of their own.

A comment above a block says what it needs that a test has not: ``<!-- needs: network -->``, ``gpu``, ``data`` or
``memory``. Such a block is not run; that its Python compiles, its commands parse, and its recipes, settings and files
exist is checked.
``<!-- needs: minutes -->`` leaves a block to the slow tests, and ``<!-- needs: onnx -->`` to where its packages are.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[2]
EPOCHS = 2
NEEDS = ("network", "gpu", "data", "memory", "minutes", "onnx")
OF_ONNX = ("onnx", "onnxscript", "onnxruntime")
LANGUAGES = ("bash", "python")
SHOWN = ("text", "json", "yaml", "html")  # nothing to run
FURNITURE = ("recipes", "examples", "benchmarks", "docs")  # folders of the repository that pages speak of

FENCE = re.compile(
    r"(?P<marker><!-- needs: (?P<needs>[\w, ]+) -->\n)?^```[ ]?(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
LAUNCHED = re.compile(r"(?:^|\s)(?:ssl-hub|-m ssl_hub|recipes/(?P<launcher>\w+)\.py)(?P<words>[^|;&'#\n]*)")
OURS = re.compile(r"\b(?:recipes|examples|benchmarks|docs)/[\w./-]+")
NEEDS_A_SHELL = re.compile(r"[|&;<>$*]")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    code: str
    needs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class BlockFailed(Exception):
    """Names the block and says what it printed."""


def blocks_in(text: str, page: str) -> list[Block]:
    """The fenced blocks of a page's text, in order. A fence without a language, or an unknown need, is an error."""
    found = []
    for match in FENCE.finditer(text):
        needs = tuple(re.findall(r"\w+", match["needs"] or ""))
        line = text.count("\n", 0, match.start("language")) + 1
        block = Block(page, line, match["language"], match["code"], needs)
        if block.language not in LANGUAGES + SHOWN:
            raise BlockFailed(f"{block} is {block.language or 'nothing'!r}, expected one of {LANGUAGES + SHOWN}")
        if not set(needs) <= set(NEEDS):
            raise BlockFailed(f"{block} needs {needs}, expected some of {NEEDS}")
        found.append(block)
    return found


def run_blocks(blocks: Iterable[Block], folder: Path, *, minutes: bool = False) -> None:
    """Run a page's blocks in ``folder``, in this process, whose state they change. Raises :class:`BlockFailed`."""
    _furnish(folder)
    os.chdir(folder)
    os.environ |= {"SSL_HUB_HOME": str(folder / "store"), "HF_HOME": str(folder / "hf"), "MPLBACKEND": "agg"}
    os.environ["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    _shorten_digits()
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        if not _met(block.needs, minutes):
            _guarded(block, _check_unrun, block)
        elif block.language == "python":
            _guarded(block, exec, compile(block.code, str(block), "exec"), namespace)
        elif block.language == "bash":
            for command in _commands(block.code):
                _guarded(block, _run_command, command)


def _met(needs: tuple[str, ...], minutes: bool) -> bool:
    has = {"minutes"} if minutes else set()
    if all(importlib.util.find_spec(name) for name in OF_ONNX):
        has.add("onnx")
    return set(needs) <= has


def _furnish(folder: Path) -> None:
    """What a clone of the repository has, as far as pages use it, and an ``ssl-hub`` for lines that need a shell."""
    for name in FURNITURE:
        shutil.copytree(ROOT / name, folder / name)  # copies, which commands may write to
    (folder / "bin").mkdir()
    for name, words in {"ssl-hub": "-m ssl_hub.cli", "python": ""}.items():
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (folder / "bin" / name).chmod(0o755)


def _shorten_digits() -> None:
    from ssl_hub.data.digits import digits
    from ssl_hub.data.sources import SOURCES
    from ssl_hub.zoo import RECIPES

    SOURCES._entries["digits"] = lambda split: digits(split).subset(slice(None, None, 3))
    for name in RECIPES.names("*-digits"):
        recipe = RECIPES[name]
        RECIPES._entries[name] = replace(recipe, train=replace(recipe.train, epochs=EPOCHS))


def _guarded(block: Block, run: Any, *arguments: Any) -> None:
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            run(*arguments)
    except (Exception, SystemExit):
        raise BlockFailed(f"{block}\n{block.code}\n{printed.getvalue()}\n{traceback.format_exc()}") from None


def _commands(code: str) -> Iterator[str]:
    for line in code.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line


def _run_command(command: str) -> None:
    words = shlex.split(command, comments=True)
    if NEEDS_A_SHELL.search(" ".join(words)):
        _in_shell(command)
    elif words[0] == "export":
        os.environ |= dict(word.split("=", 1) for word in words[1:])
    elif words[0] == "ssl-hub" or (words[:2] == ["accelerate", "launch"] and "ssl_hub" in words):
        from ssl_hub.cli import main

        _expect_success(main(words[words.index("ssl_hub") + 1 :] if "ssl_hub" in words else words[1:]), command)
    elif words[0] == "python" and words[1].endswith(".py"):
        _run_file(words[1:])
    else:
        _in_shell(command)


def _run_file(words: list[str]) -> None:
    """``python FILE ARGUMENTS``."""
    with mock.patch.object(sys, "argv", words), mock.patch.object(sys, "path", [str(Path(words[0]).parent), *sys.path]):
        try:
            runpy.run_path(words[0], run_name="__main__")
        except SystemExit as done:
            _expect_success(done.code, " ".join(words))


def _in_shell(command: str) -> None:
    done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    _expect_success(done.returncode, command)


def _expect_success(code: Any, command: str) -> None:
    if code not in (0, None):
        raise RuntimeError(f"exit code {code} from: {command}")


def _check_unrun(block: Block) -> None:
    """What can be said of a block without running it."""
    if block.language == "python":
        compile(block.code, str(block), "exec")
        return
    code = "\n".join(_commands(block.code))
    for path in OURS.findall(code):
        if not (ROOT / path).exists():
            raise RuntimeError(f"there is no {path} in the repository")
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"^make ([\w-]+)", code, re.MULTILINE):
        if target not in targets:
            raise RuntimeError(f"the Makefile has no target {target!r}")
    for found in LAUNCHED.finditer(code):
        _parse(shlex.split(found["words"]), found["launcher"])


def _parse(words: list[str], launcher: str | None) -> None:
    """Parse a command as ``ssl-hub`` does without running it; its recipe, unless a placeholder, takes its settings."""
    from ssl_hub import cli
    from ssl_hub.codec import parse_assignments
    from ssl_hub.train.sweep import split_axes
    from ssl_hub.zoo import get_recipe

    parsed: list[Any] = []
    parse = cli._parse

    def parse_and_keep(*arguments: Any) -> Any:
        parsed.append(parse(*arguments))
        return parsed[-1]

    with mock.patch.object(cli, "_parse", parse_and_keep), mock.patch.object(cli, "guarded", lambda run: 0):
        cli.main(words, launcher=launcher)
    (arguments,) = parsed
    recipe = getattr(arguments, "recipe", None)
    if recipe is not None and not recipe.isupper() and not recipe.endswith(".json"):
        settings = parse_assignments(getattr(arguments, "overrides", []))
        if arguments.command == "sweep":
            axes, settings = split_axes(settings)
            settings |= {key: values[0] for key, values in axes.items()}
        get_recipe(recipe, **settings)


if __name__ == "__main__":
    text, page, folder, minutes = sys.argv[1:]
    try:
        run_blocks(blocks_in(text, page), Path(folder), minutes=bool(minutes))
    except BlockFailed as error:
        raise SystemExit(str(error)) from None

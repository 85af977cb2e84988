"""The ``ssl-hub`` command: finds the command that is meant, and turns what is wrong with its input into one line."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence

from ssl_hub import __version__, completion, plugins
from ssl_hub.commands import RESUME, register_all
from ssl_hub.errors import UsageError
from ssl_hub.processes import LEFT_READING, complains, speaks
from ssl_hub.stopping import REQUEUE, Interrupted, disregard, interruptible

BAD_INPUT, INTERRUPTED = 2, 130
OF_THE_PLACE = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG}


def main(argv: Sequence[str] | None = None, *, launcher: str | None = None) -> int:
    """Run ``ssl-hub``; returns the exit code, see :func:`guarded`.

    ``launcher`` is the command that a script in ``recipes/`` stands for: its arguments are that command's.
    """
    parser = argparse.ArgumentParser(
        prog="ssl-hub", description="Non-contrastive self-supervised learning: recipes, models, evaluation."
    )
    parser.add_argument("--version", action="version", version=f"ssl_hub {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    register_all(commands)
    parser.add_argument("--import", metavar="MODULE", help="of yours, that registers something; wherever it stands")
    completion.answer(parser, commands)
    words, modules = _without_imports(sys.argv[1:] if argv is None else argv)
    if not all(modules):
        parser.error("--import takes the name of a module, such as my_package.methods")
    if modules:
        plugins.name_modules(modules)
    if launcher is not None:
        commands.choices[launcher].prog = f"recipes/{launcher}.py"
        words.insert(0, launcher)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without ± is no reason to fail
    arguments = _parse(parser, words)
    _wait_asleep()
    return guarded(lambda: arguments.run(arguments))


def _parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse, with ``key=value`` and the recipe anywhere among the options; argparse alone does not find them."""
    # argparse would take a recipe that follows --resume for its value.
    pairs = zip(argv, [*argv[1:], ""], strict=False)  # one more where there are no words
    argv = [f"{word}=yes" if word == "--resume" and after not in RESUME else word for word, after in pairs]
    arguments, rest = parser.parse_known_args(argv)
    if rest and (any(word.startswith("-") for word in rest) or not hasattr(arguments, "overrides")):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest and getattr(arguments, "recipe", "") is None and "=" not in rest[0]:
        arguments.recipe = rest.pop(0)
    if rest:
        arguments.overrides += rest
    return arguments


def _without_imports(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words without any ``--import MODULE`` or ``--import=MODULE``, and those modules."""
    words, modules = [], []
    following = iter(argv)
    for word in following:
        if word == "--import":
            modules.append(next(following, ""))
        elif word.startswith("--import="):
            modules.append(word.partition("=")[2])
        else:
            words.append(word)
    return words, modules


def _wait_asleep() -> None:
    """Have OpenMP threads that wait for others sleep rather than spin, unless the user chose; before torch is imported.

    On cores that other processes use too, spinning threads wait for each other's time slices: steps of the demo took
    three to seven times longer.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def guarded(run: Callable[[], None]) -> int:
    """Run; what ends it becomes one line on the main process's stderr and an exit code. Bugs keep their traceback.

    2 is for bad input, 75 for SIGTERM and SIGUSR1, 130 for Ctrl-C where no run could be saved.
    """
    with interruptible():
        try:
            code = _guarded(run)
        except Exception:
            if not _is_one_of_several():
                raise
            traceback.print_exc()
            code = 1
        if code == REQUEUE:
            disregard()
    if code == REQUEUE:
        disregard()  # what follows is Python's end, and the code is to survive it
    if (code and _is_one_of_several()) or _left_reading():
        # Python's end would wait for collectives that the other processes never come to, and C++ answers it with
        # SIGABRT where a thread is in there
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _left_reading() -> bool:
    """Whether a thread is left in a read that does not end; see :class:`ssl_hub.data.read_ahead.ReadAhead`."""
    return any(thread.name == LEFT_READING for thread in threading.enumerate())


def _is_one_of_several() -> bool:
    """Whether this process belongs to a process group, found out without importing torch."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_initialized() and distributed.get_world_size() > 1


def _in_one_line(error: UsageError) -> str:
    """Names of files in it may hold line ends, and what commands a terminal: escaped, as ``repr`` does."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(error))


def _guarded(run: Callable[[], None]) -> int:
    try:
        run()
        print(end="", flush=True)  # here, where a full disk or a closed pipe is still a word and not a traceback
    except UsageError as error:
        if complains():
            print(f"error: {_in_one_line(error)}", file=sys.stderr)
        return BAD_INPUT
    except Interrupted as error:
        if error.line is not None and speaks():
            print(error.line, file=sys.stderr)
        return REQUEUE
    except KeyboardInterrupt:  # while a run trains, it is a signal to save and stop
        if speaks():
            print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - held until exit, so that the final flush has a place to go
    except OSError as error:
        if error.errno not in OF_THE_PLACE:
            raise
        place = f"{error.strerror}: {error.filename}; choose another place"
        print(f"error: {'no space left for the output' if error.errno == errno.ENOSPC else place}", file=sys.stderr)
        return BAD_INPUT
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

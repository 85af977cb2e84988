"""Whether the tests notice faults: each of ``mutants.py`` is put into a copy of the tree, where its tests then run.

python benchmarks/mutation.py
python benchmarks/mutation.py --only 'train/*' --results /tmp/mutation.json

First the tests run without a fault, and have to pass. What is finished is kept in ``--results``, so that the command
goes on where it was stopped, and tries again what survived; ``--only`` runs what it names again, by file or by words
(``'*'``: all). Exits with 1 where a fault survives.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mutants import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutation.json"
LEFT_OUT = (".git", ".venv", "runs", "build", "dist", "__pycache__", ".*_cache")
LONGEST = 300  # seconds, beyond which a fault has made the tests hang: that is noticed too
PASSED = "tests that pass without a fault"

Outcome = dict[str, Any]
"""``caught``, ``by`` which test, ``seconds``."""


def copied(to: Path) -> Path:
    """The tree as it lies there, uncommitted changes included."""
    return Path(shutil.copytree(ROOT, to / "tree", ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True))


def tried(tree: Path, tests: Iterable[str], longest: float | None = LONGEST) -> Outcome:
    """What the tests in a copy say."""
    environment = os.environ | {"PYTHONPATH": str(tree), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    began = time.monotonic()
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=longest)
    except subprocess.TimeoutExpired:
        return {"caught": True, "by": f"no end within {LONGEST} s", "seconds": LONGEST}
    seconds = round(time.monotonic() - began, 1)
    if done.returncode == 0:
        return {"caught": False, "by": None, "seconds": seconds}
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if failed is None:
        raise SystemExit(f"{' '.join(tests)} could not be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return {"caught": True, "by": failed[1], "seconds": seconds}


def tried_with(fault: Fault, tree: Path) -> Outcome:
    source = fault.source(tree)
    text, before = source.read_text(encoding="utf-8"), source.stat()
    source.write_text(fault.put_into(text), encoding="utf-8")
    own = FAULTS.index(fault)
    os.utime(source, (own, own))  # Python tells bytecode of two versions apart by size and second alone
    try:
        return tried(tree, fault.tests)
    finally:
        source.write_text(text, encoding="utf-8")
        os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))


def table(found: dict[str, Outcome]) -> str:
    rows = ["| fault | in | by |", "|---|---|---|"]
    done = [fault for fault in FAULTS if fault.name in found]
    for fault in done:
        outcome = found[fault.name]
        by = f"`{outcome['by']}`" if outcome["caught"] else "**survived**"
        rows.append(f"| {fault.name} | `{fault.file}` | {by} |")
    caught = sum(found[fault.name]["caught"] for fault in done)
    minutes = sum(found[fault.name]["seconds"] for fault in done) / 60
    share = f"{caught} of {len(done)} caught ({100 * caught / max(len(done), 1):.0f} %), in {minutes:.0f} minutes"
    return "\n".join([*rows, "", share])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", help="faults by file or by words, run again")
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON that keeps what is finished")
    arguments = parser.parse_args()
    chosen = [
        fault
        for fault in FAULTS
        if arguments.only is None or any(fnmatch(word, arguments.only) for word in (fault.name, fault.file))
    ]
    if not chosen:
        parser.error(f"no fault matches {arguments.only!r}")
    for fault in FAULTS:
        fault.put_into(fault.source(ROOT).read_text(encoding="utf-8"))  # raises before any work
    whole: dict[str, Any] = {PASSED: [], "faults": {}}
    if arguments.results.exists():
        whole = json.loads(arguments.results.read_text(encoding="utf-8"))
    found: dict[str, Outcome] = whole["faults"]
    waiting = [fault for fault in chosen if arguments.only is not None or not found.get(fault.name, {}).get("caught")]
    changed = {test for fault in waiting if fault.name in found for test in fault.tests}  # since then, as may be
    tests = sorted({test for fault in waiting for test in fault.tests} - ({*whole[PASSED]} - changed))

    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        if tests and (failed := tried(tree, tests, None)["by"]):
            raise SystemExit(f"{failed} fails without a fault: mend it first")
        whole[PASSED] = sorted({*whole[PASSED], *tests})
        for fault in waiting:
            found[fault.name] = outcome = tried_with(fault, tree)
            print(f"{outcome['seconds']:6.1f} s  {fault.name}: {outcome['by']}", file=sys.stderr, flush=True)
            arguments.results.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    print(table(found))
    return int(any(not found[fault.name]["caught"] for fault in chosen))


if __name__ == "__main__":
    raise SystemExit(main())

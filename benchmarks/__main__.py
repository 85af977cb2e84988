"""All measurements that need no more than one machine, one after another: `python -m benchmarks` (`make bench`).

python -m benchmarks                    # what needs data is made up or left out, and says so
python -m benchmarks --data FOLDER      # with cifar10/ (parquet files) and imagenet_samples/ (JPEG files)
python -m benchmarks --quick            # smaller batches and banks: minutes
python -m benchmarks --only knn_speed
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def commands(data: Path | None, quick: bool) -> dict[str, list[str] | None]:
    """Each script's arguments, or None where it has to be left out."""
    cifar10, jpegs = _inside(data, "cifar10"), _inside(data, "imagenet_samples")
    small = ["--batch-size", "16"] if quick else []
    proof = ["--thin", "200", "--steps", "3", "--batch-size", "16"]
    return {
        "predictor_update.py": [],
        "step_cost.py": ["--cpu-time", *small],
        "checkpoint_share.py": ["--rounds", "2"] if quick else [],
        "theory_grid.py": [],
        "views_speed.py": ["--jpegs", jpegs] if jpegs else [],
        "views_trial": ["--trial", *(["--jpegs", jpegs] if jpegs else [])],
        "step_speed.py": small,
        "knn_speed.py": ["--queries", "1000"] if quick else [],
        "load_speed.py": [],
        "memory.py": ["--data", cifar10, "--paths", "resident", "workers", "--size", "32"] if cifar10 else None,
        "outside_share.py": [*(["--data", cifar10] if cifar10 else []), *small],
        "gpu_cifar10.py": ["--data", cifar10, *proof] if cifar10 else None,
        "gpu_parts": ["--parts"],
    }


def _inside(folder: Path | None, name: str) -> str | None:
    return str(folder / name) if folder is not None and (folder / name).is_dir() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("DATA"), help="default: $DATA, else none")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="without .py")
    arguments = parser.parse_args()
    data = None if arguments.data is None else Path(arguments.data)
    failed, left_out = [], []
    for name, options in commands(data, arguments.quick).items():
        if arguments.only and name.removesuffix(".py") not in arguments.only:
            continue
        if options is None:
            print(f"\n== {name}: left out, because it needs --data with cifar10/ in it", flush=True)
            left_out.append(name)
            continue
        script = {"views_trial": "views_speed.py", "gpu_parts": "gpu_cifar10.py"}.get(name, name)
        print(f"\n== {script} {' '.join(options)}", flush=True)
        if subprocess.run([sys.executable, str(HERE / script), *options], check=False).returncode:
            failed.append(name)
    if left_out:
        print(f"\nleft out: {', '.join(left_out)}")
    raise SystemExit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()

"""Put a run's release into the package, so that `ssl_hub.load` finds it without a network.

ssl-hub train directpred-digits --output runs/directpred-digits
python benchmarks/bundle.py runs/directpred-digits

The target network and the training log stay behind: they are most of a run's size. So do projector and predictor where
the rest is all that the limit holds; what is there without them loads, is probed and is fine-tuned.
"""

import shutil
import sys
from pathlib import Path

import ssl_hub
from ssl_hub.model.files import HASHES, METHOD, release_files, seal
from ssl_hub.model.release import read_tensors, write_tensors

BUNDLED = Path(ssl_hub.__file__).parent / "bundled"
LIMIT = 5 * 2**20  # bytes


def main(run: Path) -> None:
    folder = BUNDLED / run.name
    shutil.rmtree(folder, ignore_errors=True)
    ssl_hub.push(run, str(folder), licence="apache-2.0")
    for path in folder.iterdir():
        if path.is_file() and path.name not in (HASHES, *release_files(folder)):
            path.unlink()  # its card, which the repository has in model_cards/, and pictures
    method = read_tensors(folder / METHOD)
    write_tensors(folder / METHOD, {k: v for k, v in method.items() if not k.startswith("target.")})
    if size_of(folder) > LIMIT:
        (folder / METHOD).unlink()
    seal(folder)
    print(f"{folder.name}: {size_of(folder):,} bytes")
    if size_of(folder) > LIMIT:
        raise SystemExit(f"over the limit of {LIMIT:,} bytes")


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main(Path(sys.argv[1]))

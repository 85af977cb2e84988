"""The quick measurements, one after another: `python -m benchmarks` (`make bench`)."""

import subprocess
import sys
from pathlib import Path

QUICK = ("predictor_update.py", "step_cost.py", "theory_grid.py")

if __name__ == "__main__":
    here = Path(__file__).parent
    failed = []
    for name in QUICK:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, str(here / name)], check=False).returncode:
            failed.append(name)
    raise SystemExit(f"failed: {', '.join(failed)}" if failed else 0)

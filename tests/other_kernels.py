"""The tests under the kernels of other processors, one after the other, and a table of their verdicts.

python -m tests.other_kernels [pytest arguments]

A processor decides which kernels torch, oneDNN, MKL, OpenBLAS and numpy take, and so the last digits of every sum. Here
each is told to take those of another one, and torch two threads. No verdict may depend on it. Two workers of two
threads each are more threads than cores on a small machine, so they sleep at a barrier: spinning there against each
other took three times the time on two cores.
"""

import os
import subprocess
import sys
import time

TWO_THREADS = {"SSL_HUB_TEST_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
KERNELS = {
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_CBWR": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL",
        **TWO_THREADS,
    },
    "oneDNN off": {"SSL_HUB_TEST_ONEDNN": "off"},
    "no AVX": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",  # for processes that the tests start
        "SSL_HUB_TEST_ONEDNN": "off",
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL",
        **TWO_THREADS,
    },
}


def main(arguments: list[str]) -> int:
    rows, codes = [], []
    for name, settings in KERNELS.items():
        print(f"== {name}: {' '.join(f'{k}={v!r}' for k, v in settings.items())}", flush=True)
        started, verdict = time.monotonic(), ""
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *arguments]
        with subprocess.Popen(command, env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True) as running:
            for line in running.stdout or ():
                print(line, end="", flush=True)
                verdict = line.strip() or verdict
        codes.append(running.returncode)
        rows.append((name, verdict, time.monotonic() - started))
    for name, verdict, seconds in [*rows, ("all", "", sum(row[2] for row in rows))]:
        print(f"{name:10} {seconds / 60:5.1f} min  {verdict}")
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

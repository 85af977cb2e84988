"""``recipes/train.py`` whose last rank dies once, at the step that ``DIES_AT`` says, and is late when it starts again.

torchrun --max-restarts 2 --nproc_per_node 2 tests/end_to_end/dying.py RECIPE ...
"""

import os
import signal
import time

from ssl_hub.cli import main
from ssl_hub.train import together
from ssl_hub.train.step import Trainer

advance = Trainer.advance


def advance_or_die(trainer, micro_batches):
    last = trainer.accelerator.process_index == trainer.accelerator.num_processes - 1
    first_start = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"
    if first_start and last and trainer.step == int(os.environ["DIES_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return advance(trainer, micro_batches)


if __name__ == "__main__":
    Trainer.advance = advance_or_die
    together.GRACE_SECONDS = 2.0
    if os.environ["TORCHELASTIC_RESTART_COUNT"] != "0" and os.environ["RANK"] != "0":
        time.sleep(1.5 * together.GRACE_SECONDS)  # the others must not find the one before
    raise SystemExit(main(launcher="train"))

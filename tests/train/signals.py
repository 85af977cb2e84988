"""A real SIGTERM in a chosen step of a run in this process."""

import itertools
import signal

from ssl_hub.train.journal import Journal


def signal_in_step(number, patch):
    """SIGTERM in that step of the next run, until ``patch`` is undone."""
    after_step, steps = Journal.after_step, itertools.count(1)

    def signalled(journal, report):
        after_step(journal, report)
        if next(steps) == number:
            signal.raise_signal(signal.SIGTERM)

    patch.setattr(Journal, "after_step", signalled)

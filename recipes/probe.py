"""Probe a frozen backbone on one process or many.

accelerate launch recipes/probe.py directpred-r50-300ep --data imagenet/ --protocol byol
torchrun --nproc_per_node 2 recipes/probe.py byol-digits               # two CPU processes
"""

from ssl_hub.cli import main

if __name__ == "__main__":
    raise SystemExit(main(launcher="probe"))

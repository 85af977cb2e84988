"""Train a recipe on one process or many.

accelerate launch recipes/train.py                                     # the built-in demo
accelerate launch recipes/train.py directpred-r50-300ep --data imagenet/
torchrun --nproc_per_node 2 recipes/train.py byol-digits               # two CPU processes
"""

from ssl_hub.cli import main

if __name__ == "__main__":
    raise SystemExit(main(launcher="train"))

"""Fine-tune a backbone on labelled images, on one process or many.

accelerate launch recipes/finetune.py directpred-r50-300ep --data imagenet/ --train-list 1percent.txt lr=0.02 epochs=30
accelerate launch recipes/finetune.py byol-digits --data digits layer_decay=0.65 freeze=2
"""

from ssl_hub.cli import main

if __name__ == "__main__":
    raise SystemExit(main(launcher="finetune"))

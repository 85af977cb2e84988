"""Classify by nearest neighbours of a frozen backbone's features, on one process or many.

accelerate launch recipes/knn.py directpred-r50-300ep --data imagenet/ --k 200
"""

from ssl_hub.cli import main

if __name__ == "__main__":
    raise SystemExit(main(launcher="knn"))

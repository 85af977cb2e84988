"""kNN classification against scikit-learn's brute force and faiss-cpu's flat index, on the same features.

pip install -e '.[bench]'
python benchmarks/knn_speed.py                                   # 50,000 x 512 bank, 10,000 queries, k = 200
python benchmarks/knn_speed.py --bank 5000 --queries 1000

All three find each query's k nearest rows by cosine; ssl_hub's time includes the vote, the others' only the search.
Features are made up: classes of unit vectors with noise. Each time is this process's own on one thread, the least of
rounds in turn. The others' neighbours are then put to the same vote, whose classes are compared with ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import least_seconds, machine, one_thread, print_table

from ssl_hub.evaluate.knn import knn_classify

CLASSES = 100


def features(rows: int, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(CLASSES, width))
    labels = generator.integers(0, CLASSES, rows)
    x = (centres[labels] + 2 * generator.normal(size=(rows, width))).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bank", type=int, default=50_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--k", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    one_thread()
    (bank, labels), (queries, _) = (
        features(rows, arguments.width, seed) for seed, rows in enumerate((arguments.bank, arguments.queries), 1)
    )
    k = arguments.k
    neighbours: dict[str, np.ndarray] = {}
    classes: dict[str, np.ndarray] = {}

    def ours() -> None:
        classes["ssl_hub"] = knn_classify(bank, labels, queries, k=k, num_classes=CLASSES).argmax(dim=1).numpy()

    def by_sklearn() -> None:
        from sklearn.neighbors import NearestNeighbors

        index = NearestNeighbors(n_neighbors=k, algorithm="brute", metric="euclidean", n_jobs=1).fit(bank)
        neighbours["scikit-learn, brute force"] = index.kneighbors(queries, return_distance=False)

    ways: dict[str, Callable[[], Any]] = {"ssl_hub, with the vote": ours, "scikit-learn, brute force": by_sklearn}
    try:
        import faiss

        faiss.omp_set_num_threads(1)

        def by_faiss() -> None:
            index = faiss.IndexFlatIP(arguments.width)
            index.add(bank)
            neighbours["faiss-cpu, flat index"] = index.search(queries, k)[1]

        ways["faiss-cpu, flat index"] = by_faiss
    except ImportError:
        print("faiss-cpu is not installed: its row is left out; pip install -e '.[bench]'\n")
    seconds = least_seconds(ways, repeats=arguments.repeats)
    rows: list[list[Any]] = []
    for name, s in seconds.items():
        same = ""
        if name in neighbours:
            theirs = vote(bank, labels, queries, neighbours[name])
            same = f"{100 * (theirs == classes['ssl_hub']).mean():.2f}"
        rows.append([name, s, s / seconds["ssl_hub, with the vote"], same])
    title = f"{arguments.bank:,} x {arguments.width} bank, {arguments.queries:,} queries, k = {k}"
    print(f"\n{title}; {machine('scikit-learn', 'faiss-cpu')}\n")
    print_table(["", "s", "ssl_hub is faster by", "same class (%)"], rows)


def vote(bank: np.ndarray, labels: np.ndarray, queries: np.ndarray, neighbours: np.ndarray) -> np.ndarray:
    """The class of each query by the neighbours that another library found."""
    found = np.empty(len(queries), np.int64)
    for row, near in enumerate(neighbours):
        votes = np.exp((bank[near] @ queries[row] - 1) / 0.07)
        found[row] = np.bincount(labels[near], votes, CLASSES).argmax()
    return found


if __name__ == "__main__":
    main()

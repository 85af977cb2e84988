"""A release as a feature extractor for scikit-learn: the network stays as it is, the rest is an ordinary pipeline.

    python examples/frozen_features.py

Seconds on one core, no download. Prints how well a few classifiers do with few labels, on features and on raw pixels.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ssl_hub
from ssl_hub.data.sources import Source, open_source

CLASSIFIERS = {
    "logistic regression": LogisticRegression(C=0.1, max_iter=1000),
    "5 nearest neighbours": KNeighborsClassifier(5),
}


@torch.no_grad()
def features_of(model: torch.nn.Module, source: Source) -> NDArray[np.float32]:
    """Features [N, C] of every image, as the model's own evaluation transform prepares it."""
    transform = ssl_hub.eval_transform(model)
    images = torch.stack([transform(source.image(i)) for i in range(len(source))])
    return np.concatenate([model(batch).numpy() for batch in images.split(256)])


def pixels_of(source: Source) -> NDArray[np.float32]:
    """The images themselves [N, H W 3]."""
    return np.stack([np.asarray(source.image(i), np.float32).ravel() for i in range(len(source))])


def first_of_each_class(labels: NDArray[np.int64], count: int) -> NDArray[np.intp]:
    """Positions of the first ``count`` images of each class."""
    return np.concatenate([np.flatnonzero(labels == label)[:count] for label in np.unique(labels)])


def main(argv: list[str] | None = None) -> dict[str, dict[str, float]]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("release", nargs="?", default="directpred-digits")
    parser.add_argument("--labels", type=int, default=20, help="of each class (default 20)")
    arguments = parser.parse_args(argv)

    train, test = open_source("digits", "train"), open_source("digits", "test")
    assert train.labels is not None and test.labels is not None
    few = first_of_each_class(train.labels, arguments.labels)
    model = ssl_hub.load(arguments.release)

    scores: dict[str, dict[str, float]] = {}
    for name, x, x_test in (
        ("features", features_of(model, train), features_of(model, test)),
        ("pixels", pixels_of(train), pixels_of(test)),
    ):
        scores[name] = {
            title: make_pipeline(StandardScaler(), classifier).fit(x[few], train.labels[few]).score(x_test, test.labels)
            for title, classifier in CLASSIFIERS.items()
        }
        groups = KMeans(10, n_init=5, random_state=0).fit_predict(StandardScaler().fit_transform(x_test))
        scores[name]["clusters, no labels at all (adjusted Rand index)"] = adjusted_rand_score(test.labels, groups)

    print(f"{arguments.labels} labels a class, {len(test)} test images{'features':>25}{'pixels':>10}")
    for title, score in scores["features"].items():
        print(f"{title:50}{score:10.3f}{scores['pixels'][title]:10.3f}")
    return scores


if __name__ == "__main__":
    main()

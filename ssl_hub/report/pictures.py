"""Sections made of images: the views, nearest neighbours, the map of the features and the probe's confusions."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from PIL import Image, ImageOps

from ssl_hub.config import Data
from ssl_hub.data.images import Source
from ssl_hub.data.sheet import sheet_of
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.embedding import class_of, nearest
from ssl_hub.evaluate.labels import UNLABELLED
from ssl_hub.model.probe_head import ProbeHead, head_path
from ssl_hub.model.standing import bases, kind_of, objection
from ssl_hub.report.html import ABSENT, Markup, Missing, data_block, data_url, element, framed, picture, together
from ssl_hub.report.record import Record
from ssl_hub.report.story import Evidence, Story, pressed

THUMBNAIL = 88  # pixels
DOT = 32  # pixels of the images behind the map's dots
QUERIES, NEIGHBOURS = 8, 8
MOST_CLASSES = 24  # of a confusion matrix that can be read


def views(story: Story) -> Markup:
    """What the network was shown: images and the views drawn of them."""

    def draw(record: Record) -> Markup:
        if record.recipe is None:
            raise Missing("the recipe of this run cannot be read")
        own = record.recipe.data
        data = own if story.data in (None, own.name) else Data(name=story.data, pretrain_split=own.pretrain_split)
        try:
            sheet = sheet_of(replace(record.recipe, data=data), images=6, draws=2)
        except UsageError as error:
            raise Missing(str(error)) from None
        return picture(sheet, alt="images and their views", class_="sheet")

    return story.each(draw, kind="views")


def gallery(story: Story) -> Markup:
    """Images beside those whose features are nearest."""
    return story.each(lambda record: _gallery(story.evidence(record)), kind="gallery")


def feature_map(story: Story) -> Markup:
    """Features in two dimensions, coloured by class."""
    return story.each(lambda record: _map(story.evidence(record)), kind="map")


def confusion(story: Story) -> Markup:
    """What the linear probe takes for what."""
    return story.each(lambda record: _confusion(record, story.evidence(record)), kind="confusion")


def _gallery(evidence: Evidence) -> Markup:
    bank, queries = evidence.bank, evidence.queries
    chosen = _spread_over_classes(queries, QUERIES)
    # One more where queries are of the bank: each finds itself first.
    k = NEIGHBOURS + evidence.same_split
    similarities, rows = nearest(evidence.bank_features.x, evidence.query_features.x[chosen], k)
    lines = []
    for place, query in enumerate(chosen):
        name = class_of(queries, query)
        found = zip(rows[place], similarities[place], strict=True)
        others = [(r, s) for r, s in found if not (evidence.same_split and r == query)]
        shown = [
            _thumbnail(bank, int(r), f"{s:.2f}", None if name is None else class_of(bank, int(r)) == name)
            for r, s in others[:NEIGHBOURS]
        ]
        lines.append(element("div", _thumbnail(queries, int(query), "query", None), *shown, class_="neighbours"))
    of = f"{len(bank):,} of the {evidence.bank_size:,}" if len(bank) < evidence.bank_size else f"the {len(bank):,}"
    note = (
        f"Queries are spread evenly over the classes of the {queries.split} split, none picked by hand; neighbours are"
        f" of {of} images of the {bank.split} split, by cosine similarity."
    )
    return together(element("p", note, class_="note"), element("div", *lines, class_="gallery"))


def _thumbnail(source: Source, row: int, caption: str, right: bool | None) -> Markup:
    name = class_of(source, row)
    mark = None if right is None else element("b", "✓" if right else "✗", class_="right" if right else "wrong")
    kind = {None: None, True: "is-right", False: "is-wrong"}[right]
    image = _square(source.image(row), THUMBNAIL)
    words = element(
        "figcaption", element("span", name if name is not None else source.id(row)), element("small", caption), mark
    )
    alt = f"{source.id(row)}, {name if name is not None else 'unlabelled'}"
    return element("figure", picture(image, alt=alt, width=THUMBNAIL, height=THUMBNAIL), words, class_=kind)


def _map(evidence: Evidence) -> Markup:
    features, source = evidence.query_features, evidence.queries
    if len(features) < 3:
        raise Missing(f"a map takes three images or more, and the {source.split} split has {len(features)}")
    maps = {"PCA": pca(features.x)}
    if importlib.util.find_spec("umap") is not None:
        maps["UMAP"] = umap(features.x)
    columns = int(np.ceil(np.sqrt(len(features))))
    sprite = Image.new("RGB", (columns * DOT, -(-len(features) // columns) * DOT))
    for row in range(len(features)):
        sprite.paste(_square(source.image(row), DOT, smallest=DOT), (row % columns * DOT, row // columns * DOT))
    spec = {
        "maps": {name: np.round(points, 4).tolist() for name, points in maps.items()},
        "labels": features.y.tolist(),
        "classes": list(source.classes or ()),
        "ids": [source.id(row) for row in range(len(features))],
        "columns": columns,
        "dot": DOT,
    }
    note = f"{len(features):,} images of the {source.split} split; point at a dot to see its image."
    if source.classes is None:
        note += " The data has no labels, so the dots have one colour."
    buttons = [
        element("button", name, type="button", data_map=name, aria_pressed=pressed(i == 0))
        for i, name in enumerate(maps)
    ]
    return together(
        element("p", note, class_="note"),
        element("div", *buttons, class_="tabs") if len(maps) > 1 else None,
        element(
            "div",
            element("canvas", role="img", aria_label="map of the features"),
            element("div", class_="key classes"),
            element("div", element("div", class_="sprite"), element("span"), class_="tip", hidden=True),
            element("img", src=data_url(sprite, quality=70), alt="", class_="sprite-sheet", hidden=True),
            data_block(spec),
            class_="map",
        ),
    )


def pca(x: np.ndarray) -> np.ndarray:
    """The two leading principal components [N, 2] of l2-normalised features [N, C], each sign fixed by its largest."""
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    centred = unit - unit.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros((len(x), 2))
    count = min(2, len(s))
    points[:, :count] = u[:, :count] * s[:count]
    return points * np.sign(points[np.abs(points).argmax(axis=0), [0, 1]] + 1e-30)


def umap(x: np.ndarray) -> np.ndarray:
    """UMAP's two dimensions [N, 2] of features [N, C], by cosine distance and a fixed seed."""
    from umap import UMAP  # type: ignore[import-not-found, unused-ignore]

    return np.asarray(UMAP(metric="cosine", random_state=0, n_neighbors=min(15, len(x) - 1)).fit_transform(x))


def _confusion(record: Record, evidence: Evidence) -> Markup:
    features = evidence.query_features
    if features.classes is None or (features.y == UNLABELLED).all():
        raise Missing(f"the {features.split} split of {features.dataset} has no labels")
    if record.at is not None:
        raise Missing("the probe head is of the finished run's features")
    try:
        head = ProbeHead.load(record.folder, features.dataset, width=features.width)
    except UsageError as error:
        raise Missing(_why_no_head(record, features.dataset) or str(error)) from None
    if head.value_range is not None:
        raise Missing(
            f"the probe was fitted to images read with --range {head.value_range}, and these are read otherwise"
        )
    if head.classes != features.classes:
        raise Missing(f"the probe head for {features.dataset} knows other classes than the data has")
    known = features.y != UNLABELLED
    guesses = (torch.from_numpy(features.x) @ head.weight.T + head.bias).argmax(dim=1).numpy()[known]
    labels, count = features.y[known], len(head.classes)
    counts = np.bincount(labels * count + guesses, minlength=count * count).reshape(count, count)
    right = f"{100 * np.trace(counts) / counts.sum():.1f} % of {counts.sum():,} images right"
    note = f"Rows are true classes, columns the probe's answers; {right} ({features.split} split)."
    fitted = str(head.settings.get("train_split", ""))
    if fitted and bases(fitted) & bases(features.split):
        note += f" The probe was fitted to images of this split ({fitted}), so this says nothing of others."
    shown = np.arange(count)
    if count > MOST_CLASSES:
        errors = counts.sum(axis=0) + counts.sum(axis=1) - 2 * np.diag(counts)
        shown = np.sort(errors.argsort(kind="stable")[-MOST_CLASSES:])
        note += f" Of {count} classes, the {MOST_CLASSES} with the most errors are shown."
    return together(element("p", note, class_="note"), _matrix(counts, head.classes, shown))


def _why_no_head(record: Record, dataset: str) -> str:
    """Why a run that was probed on this data has no head for it; empty where that is not the reason."""
    probed = [r for r in record.results if kind_of(r) == "linear" and r.dataset == dataset]
    if head_path(record.folder, dataset).exists() or not probed:
        return ""
    last = max(probed, key=lambda result: result.when)
    if (folds := last.settings.get("folds")) is not None:
        return (
            f"{record.name} was probed on {dataset} with --folds {folds}, which fits a head for each fold and keeps"
            " none. What was right of each class is in results.json; a matrix takes a probe with a test split, or"
            " with --holdout 0.2"
        )
    if reason := objection(last, record.train_split):
        return f"{record.name} was probed on {dataset}, and the head was not kept: {reason}"
    return ""


def _matrix(counts: np.ndarray, classes: Sequence[str], shown: np.ndarray) -> Markup:
    totals = np.maximum(counts.sum(axis=1), 1)
    rows = []
    for true in shown:
        cells = [
            element(
                "td",
                str(counts[true, guess]) if counts[true, guess] else "",
                title=f"{classes[true]} taken for {classes[guess]}: {counts[true, guess]} of {counts[true].sum()}",
                class_="right" if true == guess else "wrong",
                style=f"--share:{counts[true, guess] / totals[true]:.3f}",
            )
            for guess in shown
        ]
        share = f"{100 * counts[true, true] / totals[true]:.0f} %" if counts[true].sum() else ABSENT
        rows.append(element("tr", element("th", classes[true]), *cells, element("td", share, class_="number")))
    names = [element("th", element("span", classes[guess])) for guess in shown]
    head = element("tr", element("th"), *names, element("th", "right"))
    kind = "confusion long" if max(len(classes[i]) for i in shown) > 3 else "confusion"
    return framed(head, rows, class_=kind)


def _spread_over_classes(source: Source, count: int) -> np.ndarray:
    """Rows of a source, evenly spaced after sorting by class."""
    order = np.arange(len(source)) if source.labels is None else np.argsort(source.labels, kind="stable")
    return np.unique(order[np.linspace(0, len(order) - 1, min(count, len(order)) + 2).round().astype(int)[1:-1]])


def _square(image: Image.Image, side: int, smallest: int = 0) -> Image.Image:
    """The central square, shrunk to ``side`` pixels; a smaller one is not enlarged beyond ``smallest``."""
    own = min(image.size)
    wanted = max(min(own, side), smallest)
    method = Image.Resampling.NEAREST if own < wanted else Image.Resampling.LANCZOS
    return ImageOps.fit(image, (wanted, wanted), method)

"""The backbone among the tensors of a checkpoint, whatever comes before its names, under timm's names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from ssl_hub.errors import UsageError
from ssl_hub.hub.importers.checkpoint import Tensors, bare_name, equal, moved, under

# What may sit under the backbone's own prefix without being part of it.
BESIDE = re.compile(
    r"(fc|heads?|classifier|linear|projector|projection\w*|predictor|prediction\w*|prototypes?|decoder\w*)\."
    r"|(n_averaged|queue\w*|mask_token|decoder_\w+)$"
)
STAGE = re.compile(r"(.*\.)?(\d+)\.0\.conv1\.weight")
CLASSIFIER = re.compile(r"(.*\.)?(fc|head|head\.fc|classifier)\.weight")
RESNETS: dict[tuple[tuple[int, ...], bool], str] = {  # blocks of each stage, and whether they are bottlenecks
    ((2, 2, 2, 2), False): "resnet18",
    ((3, 4, 6, 3), False): "resnet34",
    ((3, 4, 6, 3), True): "resnet50",
    ((3, 4, 23, 3), True): "resnet101",
    ((3, 8, 36, 3), True): "resnet152",
}
LETTERED = ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")


def find_backbone(
    tensors: Tensors,
    own: Mapping[str, Tensor],
    *,
    architecture: str,
    where: str,
    classifier: Collection[str] = (),
) -> Tensors:
    """The tensors of a backbone whose names, after one prefix, are those of ``own``, under those names.

    The prefix is found, not listed: it is what stands before the most names of ``own``. torchvision's ResNets have
    timm's names; one cut into a Sequential (``0.weight``, ``4.0.conv1.weight``) gets them back.

    Returns:
        Everything below the prefix but heads, and the classifier, which timm's model has under the names that are
        given: names that ``own`` lacks are left in for a strict load to refuse.

    Raises:
        UsageError: under half of the names match (``0 of N``), or two different backbones are there: none is the first.
    """
    bare = {bare_name(name): name for name in own}
    if bare.keys() != own.keys():  # some architectures have a layer called `module`
        asked = {short: own[name] for short, name in bare.items()}
        found = find_backbone(tensors, asked, architecture=architecture, where=where, classifier=classifier)
        return {bare.get(name, name): tensor for name, tensor in found.items()}
    tensors = lettered(tensors, architecture=architecture, where=where)
    counts: Counter[str] = Counter()
    for name in tensors:
        starts = [0, *(dot.end() for dot in re.finditer(r"\.", name))]
        counts.update(name[:start] for start in starts if name[start:] in own)
    most = max(counts.values(), default=0)
    if 2 * most < len(own):  # what layers of any network are called
        raise UsageError(
            f"{where}: {most} of {len(own)} tensors match {architecture}; it has names like {_first(tensors)}, expected"
            f" ones that end in {_first(own)}; is it another architecture, or another project's file (SOURCE)?"
        )
    best = min((prefix for prefix in counts if counts[prefix] == most), key=len)
    beside = {*map(bare_name, classifier)}
    body = {
        name: tensor
        for name, tensor in under(tensors, best).items()
        if name in own or not (name in beside or BESIDE.match(name))
    }
    claimed = {f"{best}{name}" for name in own}
    # Another model beside it: most of its names, which are not the found one's own (a layer has some of the whole's).
    others = {p: [n for n in own if f"{p}{n}" in tensors and f"{p}{n}" not in claimed] for p in counts if p != best}
    rivals = [best, *(prefix for prefix, names in others.items() if 2 * len(names) > most)]
    if any(not equal(tensors[f"{prefix}{name}"], body[name]) for prefix in rivals[1:] for name in others[prefix]):
        raise UsageError(
            f"{where} has {len(rivals)} different backbones, under {', '.join(map(repr, sorted(rivals)))}; name the"
            " project (SOURCE), or save the one that you mean alone"
        )
    counters = {name: torch.zeros((), dtype=torch.int64) for name in own if name.endswith(".num_batches_tracked")}
    whole = {n: t.nan_to_num(0, 0, 0).long() for n, t in body.items() if n in counters and t.is_floating_point()}
    return counters | body | whole  # all tensors of a model may have been made half precision


def lettered(tensors: Tensors, *, architecture: str, where: str) -> Tensors:
    """Names of ResNets that were cut into a Sequential, back to ``conv1``, ``bn1``, ``layer1``, ...

    The places of the stages say what was between: 4 to 7 with a ReLU and a max-pool, 3 to 6 with a ReLU alone. Where
    there is neither (2 to 5: lightly's ResNetGenerator, whose ReLU is not a module and gets lost in a Sequential) the
    model is none that timm has.
    """
    stages: dict[str, list[int]] = {}
    for name in tensors:
        if (match := STAGE.fullmatch(name)) and f"{match[1] or ''}0.weight" in tensors:
            stages.setdefault(match[1] or "", []).append(int(match[2]))
    for prefix, places in stages.items():
        first, kernel = min(places), tensors[f"{prefix}0.weight"].shape[-1]
        if first not in ((4,) if kernel == 7 else (3, 4)):
            between = "a ReLU and no max-pool" if first == 3 else "no ReLU"
            raise UsageError(
                f"{where}: the {kernel}x{kernel} stem under {prefix!r} has {between} before the first stage (number"
                f" {first}), which {architecture}'s stem does not: its features could not be the same"
            )
        numbered = zip((f"{place}." for place in (0, 1, *sorted(places))), LETTERED, strict=False)
        tensors = moved(tensors, {f"{prefix}{number}": f"{prefix}{letters}." for number, letters in numbered})
    return tensors


def resnet_of(tensors: Mapping[str, Tensor]) -> str | None:
    """Which ResNet the tensors of a backbone, under timm's names, count as; None for another kind of model."""
    places = [match.groups() for name in tensors if (match := re.match(r"layer([1-4])\.(\d+)\.conv1\.", name))]
    blocks = Counter(stage for stage, _ in set(places))
    return RESNETS.get((tuple(blocks[stage] for stage in "1234"), "layer1.0.conv3.weight" in tensors))


def classifier_of(tensors: Tensors, names: Collection[str]) -> str | None:
    """The name and shape of a linear classifier among the tensors: under one of the ``names`` that the architecture's
    own has, or under a usual one; a projector has more than one layer."""
    own = tuple(f".{bare_name(name)}" for name in names)
    for name, tensor in tensors.items():
        if not (CLASSIFIER.fullmatch(name) or f".{name}".endswith(own)):
            continue
        if tensor.ndim == 2 or (tensor.ndim == 4 and tensor.shape[2:] == (1, 1)):
            return f"{name} {tuple(tensor.shape[:2])}"
    return None


def _first(names: Mapping[str, Tensor]) -> str:
    return ", ".join(repr(name) for name in list(names)[:3]) or "none"

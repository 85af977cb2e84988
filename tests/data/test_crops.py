"""Crops lie where torchvision's would, and a batch's matrix products cut what PIL cuts."""

import numpy as np
import pytest
import torch
from PIL import Image

from ssl_hub.data.crops import CROP_DRAWS, crop_boxes, cut, cut_batch
from ssl_hub.data.draws import uniforms


def pil_cut(pixels: np.ndarray, box: np.ndarray, size: int) -> np.ndarray:
    """What torchvision's RandomResizedCrop does to a PIL image."""
    top, left, height, width = box.tolist()
    crop = Image.fromarray(pixels).crop((left, top, left + width, top + height))
    return np.asarray(crop.resize((size, size), Image.Resampling.BILINEAR))


def draws(count: int) -> np.ndarray:
    return uniforms(0, np.arange(count)[:, None], np.arange(CROP_DRAWS)[None])


@pytest.mark.parametrize(("height", "width"), [(32, 32), (96, 64), (375, 500)])
@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.2, 1.0), (0.5, 0.6)])
def test_boxes_fit_and_have_the_asked_area_and_ratio(height: int, width: int, scale: tuple[float, float]) -> None:
    top, left, h, w = crop_boxes(draws(2000), height, width, scale).T
    assert (top >= 0).all() and (left >= 0).all() and (top + h <= height).all() and (left + w <= width).all()
    assert (h > 0).all() and (w > 0).all()
    rounding = 1.5 / np.minimum(h, w)  # relative; sides are whole pixels
    assert (h * w <= scale[1] * height * width * (1 + 2 * rounding)).all()
    assert (h * w >= scale[0] * height * width * (1 - 2 * rounding)).all()
    assert (w / h <= 4 / 3 * (1 + rounding)).all() and (w / h >= 3 / 4 * (1 - rounding)).all()


def test_distribution_is_torchvisions() -> None:
    from torchvision.transforms import RandomResizedCrop

    torch.manual_seed(0)
    image = torch.empty(3, 64, 48)
    theirs = np.array([RandomResizedCrop.get_params(image, [0.2, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)])
    ours = crop_boxes(draws(4000), 64, 48, (0.2, 1.0))
    assert ours.mean(axis=0) == pytest.approx(theirs.mean(axis=0), abs=1.0)
    assert ours.std(axis=0) == pytest.approx(theirs.std(axis=0), rel=0.06)
    quantiles = [0.05, 0.25, 0.5, 0.75, 0.95]
    assert np.quantile(ours, quantiles, axis=0) == pytest.approx(np.quantile(theirs, quantiles, axis=0), abs=1.5)


@pytest.mark.parametrize(
    ("height", "width", "box"),
    [(10, 100, [0, 43, 10, 13]), (100, 10, [43, 0, 13, 10]), (30, 30, [0, 0, 30, 30])],
)
def test_fallback_is_the_largest_central_box(height: int, width: int, box: list[int]) -> None:
    too_large = crop_boxes(draws(5), height, width, (1.5, 2.0))  # an area that never fits
    assert too_large.tolist() == [box] * 5


def test_clipped_boxes_are_the_first_draw_cut_to_the_image() -> None:
    height, width = 60, 80
    boxes, numbers = crop_boxes(draws(500), height, width, (0.08, 1.0), clipped=True), draws(500)
    areas = height * width * (0.08 + 0.92 * numbers[:, 0])
    ratios = np.exp(np.log(3 / 4) + np.log(16 / 9) * numbers[:, 10])
    assert boxes[:, 2].tolist() == np.minimum(np.round(np.sqrt(areas / ratios)), height).tolist()
    assert boxes[:, 3].tolist() == np.minimum(np.round(np.sqrt(areas * ratios)), width).tolist()
    assert (boxes[:, 0] + boxes[:, 2] <= height).all() and (boxes[:, 1] + boxes[:, 3] <= width).all()
    one_of_two = crop_boxes(numbers, height, width, (0.08, 1.0), clipped=np.arange(500) % 2 == 0)
    assert one_of_two[::2].tolist() == boxes[::2].tolist()
    assert one_of_two[1::2].tolist() == crop_boxes(numbers, height, width, (0.08, 1.0))[1::2].tolist()


@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 32), (40, 56, 24), (17, 23, 32), (200, 150, 16)])
def test_batch_equals_pil(height: int, width: int, size: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, height, width, 3), dtype=np.uint8)
    boxes = crop_boxes(draws(12), height, width, (0.08, 1.0))
    batch = cut_batch(torch.from_numpy(pixels).permute(0, 3, 1, 2).float(), boxes, size).permute(0, 2, 3, 1).numpy()
    pil = np.stack([pil_cut(p, box, size) for p, box in zip(pixels, boxes, strict=True)])
    assert np.abs(batch - pil).max() <= 1.02  # grey levels; PIL rounds after each of its two passes


@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 32), (40, 56, 24), (17, 23, 32), (300, 200, 64)])
@pytest.mark.parametrize("scale", [(0.08, 1.0), (1.0, 1.0)])
def test_one_image_equals_pil(height: int, width: int, size: int, scale: tuple[float, float]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, height, width, 3), dtype=np.uint8)
    for image, box in zip(pixels, crop_boxes(draws(12), height, width, scale), strict=True):
        expected = pil_cut(image, box, size).astype(int)
        for ours in (cut(image, box, size), cut(Image.fromarray(image), box, size)):
            assert ours.shape == (size, size, 3) and ours.dtype == np.uint8 and ours.flags.c_contiguous
            assert np.abs(ours - expected).max() <= 1


def test_scales_may_differ_by_row() -> None:
    scales = np.array([[0.08, 0.2], [0.5, 1.0]]).repeat(10, axis=0)
    together = crop_boxes(draws(20), 60, 80, scales)
    assert together[:10].tolist() == crop_boxes(draws(20)[:10], 60, 80, (0.08, 0.2)).tolist()
    assert together[10:].tolist() == crop_boxes(draws(20)[10:], 60, 80, (0.5, 1.0)).tolist()


def test_nothing_from_outside_the_box() -> None:
    image = torch.full((1, 3, 20, 20), 255.0)
    image[:, :, 5:15, 6:16] = 0
    box = np.array([[5, 6, 10, 10]])
    assert cut_batch(image, box, 8).max() == 0
    assert cut_batch(image, box, 30).max() == 0
    assert cut(Image.fromarray(image[0].permute(1, 2, 0).byte().numpy()), box[0], 8).max() == 0


def test_whole_image_at_its_own_size_is_unchanged() -> None:
    image = torch.rand(2, 3, 16, 16)
    assert torch.equal(cut_batch(image, np.array([[0, 0, 16, 16]] * 2), 16), image)

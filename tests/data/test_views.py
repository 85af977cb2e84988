"""Views: parameters by (seed, epoch, index, view) alone, BYOL's order of operations, and one evaluation transform."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional as reference

from ssl_hub.config import View, Views
from ssl_hub.data import photometric
from ssl_hub.data.crops import CROP_DRAWS, crop_boxes
from ssl_hub.data.views import TwoViews, eval_transform
from ssl_hub.errors import UsageError

PLAIN = View(crop_scale=(1.0, 1.0), flip=0, jitter=0, grey=0, blur=0, solarise=0)
STRONG = View(crop_scale=(0.2, 1.0), blur=0.5, solarise=0.2)
UNIT = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def two_views(first: View = STRONG, second: View = STRONG, size: int = 24, seed: int = 0) -> TwoViews:
    return TwoViews(Views(size=size, view1=first, view2=second, **UNIT), seed=seed)


def noise(count: int, side: int = 24) -> Tensor:
    return torch.randint(0, 256, (count, 3, side, side), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def same(images: Tensor, other: Tensor) -> bool:
    return bool((images - other).abs().max() < 1e-5)


def test_views_do_not_depend_on_the_batch() -> None:
    images, views = noise(16), two_views()
    together = views(images, np.arange(16), 3)
    order = torch.tensor([11, 2, 7])
    apart = views(images[order], order, 3)
    for whole, part in zip(together, apart, strict=True):
        assert same(whole[order], part)


def test_repeat_exactly_and_differ_by_view_epoch_seed_and_index() -> None:
    images = noise(1).expand(32, -1, -1, -1)  # one image under many indices
    first, second = two_views()(images, np.arange(32), 0)
    again = two_views()(images, np.arange(32), 0)
    assert torch.equal(first, again[0]) and torch.equal(second, again[1])
    others = [second, two_views()(images, np.arange(32), 1)[0], two_views(seed=1)(images, np.arange(32), 0)[0]]
    others.append(two_views()(images, np.arange(1, 33), 0)[0])
    for other in others:
        differs = (first - other).abs().amax(dim=(1, 2, 3)) > 0.01
        assert differs.all()


def test_no_global_randomness_is_touched() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[union-attr]
    two_views()(noise(4), np.arange(4), 0)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # type: ignore[union-attr]


def test_float_and_8_bit_images_give_the_same_views() -> None:
    images, views = noise(32), two_views()
    for whole, scaled in zip(views(images, range(32), 0), views(images.float() / 255, range(32), 0), strict=True):
        assert torch.equal(whole, scaled)
    with pytest.raises(UsageError, match=r"images are torch\.int64, expected uint8, or float in 0\.\.1"):
        views(images.long(), range(32), 0)


def test_inputs_are_left_as_they_are() -> None:
    images = noise(16).float() / 255
    kept = images.clone()
    two_views()(images, range(16), 0)
    two_views().photometric(images, range(16), 0, 0)
    assert torch.equal(images, kept)


def test_worker_and_resident_paths_agree() -> None:
    images, views = noise(24, side=40), two_views()
    resident = views(images, range(24), 5)
    crops = [views.crop(reference.to_pil_image(image), i, 5) for i, image in enumerate(images)]
    for view in (0, 1):
        batch = torch.from_numpy(np.stack([pair[view] for pair in crops])).permute(0, 3, 1, 2)
        from_workers = views.photometric(batch, torch.arange(24), 5, view)
        # Rounding to whole levels moves a pixel across solarisation's threshold now and then, hence not the maximum.
        assert (from_workers - resident[view]).abs().mean() < 1 / 255
        assert ((from_workers - resident[view]).abs() > 4 / 255).float().mean() < 0.005


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"flip": 1.0}, lambda image: image.flip(-1)),
        ({"grey": 1.0}, lambda image: reference.rgb_to_grayscale(image, 3)),
        ({"solarise": 1.0}, lambda image: reference.solarize(image, 0.5)),
        ({"blur": 1.0, "blur_sigma": (1.5, 1.5)}, lambda image: reference.gaussian_blur(image, [11, 11], [1.5, 1.5])),
    ],
    ids=["flip", "grey", "solarise", "blur"],
)
def test_probability_one_falls_on_all(change: dict[str, float], check) -> None:  # type: ignore[no-untyped-def]
    images = noise(8).float() / 255
    first, second = two_views(replace(PLAIN, **change), PLAIN)(images, range(8), 0)
    assert same(first, torch.stack([check(image) for image in images]))
    assert torch.equal(second, images)  # the other view has its own settings: nothing falls on it


@pytest.mark.parametrize("name", ["flip", "jitter", "grey", "blur", "solarise"])
def test_operations_fall_on_their_share_and_leave_the_rest_bit_for_bit(name: str) -> None:
    images = noise(1).expand(2000, -1, -1, -1)[:, :, :8, :8].float() / 255
    view = replace(PLAIN, **{name: 0.3})
    out = two_views(view, view, size=8).photometric(images, range(2000), 0, 0)
    touched = (out != images).flatten(1).any(dim=1)
    assert touched.float().mean().item() == pytest.approx(0.3, abs=0.04)


def test_jitter_is_torchvisions_with_the_parameters_that_were_drawn() -> None:
    """Factors have ColorJitter's ranges, the order varies, and the composition is that of torchvision's functions."""
    names = ("brightness", "contrast", "saturation", "hue")
    view = replace(PLAIN, jitter=1.0, brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)
    images, views = noise(64).float() / 255, two_views(view, view)
    ours = views.photometric(images, range(64), 2, 1)
    draws = views._draws(range(64), 2, 1)
    orders = draws[:, CROP_DRAWS + 2 : CROP_DRAWS + 6].argsort(axis=1)
    low, high = np.array([[0.6, 0.6, 0.8, -0.1], [1.4, 1.4, 1.2, 0.1]])
    factors = low + (high - low) * draws[:, CROP_DRAWS + 6 : CROP_DRAWS + 10]
    for image, one, order, factor in zip(images, ours, orders, factors, strict=True):
        expected = image
        for operation in order:
            expected = getattr(reference, f"adjust_{names[operation]}")(expected, factor[operation])
        assert (one - expected).abs().max() < 1e-4
    assert len({tuple(order) for order in orders}) > 15  # of 24


def test_byols_operations_with_the_parameters_that_were_drawn() -> None:
    """The same draws as torchvision's: brightness as an offset, the blur onto zeros, crops cut to the image."""
    view = View(operations="byol", flip=0, jitter=1, grey=0, blur=1, blur_sigma=(1, 1))
    images, views = noise(16).float() / 255, TwoViews(Views(size=24, view1=view, view2=view), seed=5)
    ours = views.photometric(images, range(16), 1, 0)
    draws = views._draws(range(16), 1, 0)
    low, high = np.array([[-0.4, 0.6, 0.8, -0.1], [0.4, 1.4, 1.2, 0.1]])
    amounts = low + (high - low) * draws[:, CROP_DRAWS + 6 : CROP_DRAWS + 10]
    for row, order in enumerate(draws[:, CROP_DRAWS + 2 : CROP_DRAWS + 6].argsort(axis=1)):
        expected = images[row : row + 1].clone()
        for operation in order:
            photometric.BYOL_JITTER[operation](expected, torch.tensor([[amounts[row, operation]]]).float())
        photometric.blur_onto_zeros(expected, torch.from_numpy(photometric.blur_filters(np.ones(1), 24, 24)))
        expected = reference.normalize(expected, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        assert (ours[row] - expected[0]).abs().max() < 1e-4
    wide = views._boxes(range(200), 0, 20, 60)
    assert (wide[..., 3] > 4 / 3 * wide[..., 2] + 1).any()  # a box as high as the image, of a ratio never drawn


def test_a_strength_of_zero_leaves_out_its_operation() -> None:
    view = replace(PLAIN, jitter=1.0, brightness=0, contrast=0, saturation=0, hue=0)
    images = noise(8).float() / 255
    assert torch.equal(two_views(view, view).photometric(images, range(8), 0, 0), images)


def test_order_is_crop_flip_jitter_grey_blur_solarise_normalise() -> None:
    view = View(crop_scale=(0.3, 0.5), flip=1, jitter=0, grey=1, blur=1, blur_sigma=(1, 1), solarise=1)
    views = TwoViews(Views(size=24, view1=view, view2=view), seed=4)
    images = noise(3, side=40)
    ours = views(images, range(3), 0)[0]
    boxes = crop_boxes(views._draws(range(3), 0, 0), 40, 40, (0.3, 0.5))
    for image, one, (top, left, height, width) in zip(images.float() / 255, ours, boxes.tolist(), strict=True):
        expected = reference.resized_crop(image, top, left, height, width, [24, 24], antialias=True).flip(-1)
        expected = reference.gaussian_blur(reference.rgb_to_grayscale(expected, 3), [7, 7], [1, 1])
        expected = reference.solarize(expected, 0.5)
        expected = reference.normalize(expected, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        assert (one - expected).abs().max() < 1e-4


def test_autocast_does_not_reach_the_views() -> None:
    images, views = noise(8), two_views()
    plain = views(images, range(8), 0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = views(images, range(8), 0)
    assert inside[0].dtype == torch.float32 and torch.equal(inside[0], plain[0])


def test_views_are_picklable() -> None:
    images, views = noise(4), two_views()
    copied = pickle.loads(pickle.dumps(views))
    assert torch.equal(copied(images, range(4), 0)[1], views(images, range(4), 0)[1])


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_evaluation_of_pil_and_tensor_agree(interpolation: str) -> None:
    smooth = torch.nn.functional.interpolate(noise(1, side=64).float(), size=(256, 300), mode="bilinear").byte()[0]
    transform = eval_transform(size=32, crop_pct=0.875, interpolation=interpolation, **UNIT)
    pil, tensor = transform(reference.to_pil_image(smooth)), transform(smooth)
    scaled, batch = transform(smooth.float() / 255), transform(smooth.expand(2, -1, -1, -1))
    assert pil.shape == tensor.shape == scaled.shape == (3, 32, 32) and batch.shape == (2, 3, 32, 32)
    assert type(pil) is type(tensor) is Tensor and pil.dtype == tensor.dtype == torch.float32
    assert (pil - tensor).abs().mean() < 1 / 255  # one grey level
    assert (scaled - tensor).abs().mean() < 1 / 255
    assert torch.equal(batch[1], tensor)


def test_evaluation_resize_has_antialias() -> None:
    stripes = torch.zeros(3, 256, 256, dtype=torch.uint8)
    stripes[:, :, ::2] = 255
    for image in (stripes, reference.to_pil_image(stripes), stripes.float() / 255):
        small = eval_transform(size=32, **UNIT)(image)
        assert (small - 0.5).abs().max() < 0.1  # without it, stripes remain


def test_evaluation_resizes_the_shorter_side_and_crops_the_centre() -> None:
    image = torch.zeros(3, 100, 200, dtype=torch.uint8)
    image[:, :, 50:150] = 255
    out = eval_transform(size=50, **UNIT)(image)
    assert out.shape == (3, 50, 50) and out.min() > 0.85
    assert "resize shorter side to 256" in repr(eval_transform(size=224, crop_pct=0.875, **UNIT))
    same_size = noise(1)[0]
    assert same(eval_transform(size=24, **UNIT)(same_size), same_size.float() / 255)


def test_evaluation_takes_any_pil_mode_and_pickles() -> None:
    transform = pickle.loads(pickle.dumps(eval_transform(size=16, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))))
    for mode in ("L", "RGBA", "CMYK", "P", "1"):
        assert transform(Image.new(mode, (20, 30))).shape == (3, 16, 16)
    assert transform(Image.new("L", (20, 30), 255)).min() == 1


def test_evaluation_settings_are_checked() -> None:
    with pytest.raises(UsageError, match=r"crop_pct is 87\.5, expected a share over 0 and up to 1, such as 0\.875"):
        eval_transform(size=16, crop_pct=87.5, **UNIT)
    with pytest.raises(UsageError, match="interpolation is 'lanczos', expected 'bilinear' or 'bicubic'"):
        eval_transform(size=16, interpolation="lanczos", **UNIT)


@pytest.mark.parametrize("chunk_bytes", [1, 2**14, 2**30], ids=["one by one", "a few", "all at once"])
def test_how_many_go_through_together_changes_nothing(chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    images, view = noise(20), replace(STRONG, blur_sigma=(0.1, 2.0))
    expected = two_views(view, view)(images, range(20), 1)
    monkeypatch.setattr("ssl_hub.data.views._CHUNK_BYTES", chunk_bytes)
    for whole, chunked in zip(expected, two_views(view, view)(images, range(20), 1), strict=True):
        assert (whole - chunked).abs().max() < 1e-6


@pytest.mark.parametrize("size", [(9000, 1), (1, 9000), (9001, 3), (900, 100)])
def test_a_thin_image_costs_no_more_than_others(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 9000 x 1 pixels resized whole to a height of 256 has 590 million."""
    made = []
    resize = reference.resize
    monkeypatch.setattr(reference, "resize", lambda *args, **named: made.append(resize(*args, **named)) or made[-1])
    transform = eval_transform(size=224, crop_pct=0.875, interpolation="bicubic", mean=[0.5] * 3, std=[0.5] * 3)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8))
    for kind in (image, reference.pil_to_tensor(image)):
        out = transform(kind)
        assert out.shape == (3, 224, 224) and torch.isfinite(out).all()
    assert all(np.prod(one.size if isinstance(one, Image.Image) else one.shape[-2:]) <= 10 * 256**2 for one in made)


@pytest.mark.parametrize("size", [(90, 10), (91, 10), (10, 95)])
def test_the_middle_of_a_thin_image_is_that_of_the_whole(size: tuple[int, int]) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8))
    transform = eval_transform(size=32, mean=[0] * 3, std=[1] * 3)
    whole = reference.center_crop(reference.resize(image, [32], antialias=True), [32, 32])
    exact = reference.pil_to_tensor(whole).float() / 255
    assert (transform(image) - exact).abs().mean() < 0.04  # a share of a pixel to the side, of noise

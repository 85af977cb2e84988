"""Each operation equals torchvision's functional of the same parameters, sample by sample."""

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as reference

from ssl_hub.data import photometric

LEVEL = 1 / 255


@pytest.fixture
def images() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (6, 3, 20, 24), generator=generator, dtype=torch.uint8)
    noise[0] = 0  # black, white and grey have no hue
    noise[1] = 255
    noise[2] = noise[2, :1]
    noise[3, :, :10] //= 16
    return noise


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("adjust_brightness", [0.6, 1.4, 0.2, 1.8, 0.0, 1.0]),
        ("adjust_contrast", [0.6, 1.4, 0.2, 1.8, 0.0, 1.0]),
        ("adjust_saturation", [0.8, 1.2, 0.6, 1.8, 0.0, 1.0]),
        ("adjust_hue", [-0.1, 0.1, 0.5, -0.5, 0.33, 0.0]),
    ],
)
def test_jitter_operations(images: Tensor, name: str, factors: list[float]) -> None:
    ours = getattr(photometric, name)(images.float() / 255, torch.tensor(factors))
    for image, one, factor in zip(images, ours, factors, strict=True):
        exact = getattr(reference, name)(image.float() / 255, factor)
        assert (one - exact).abs().max() < 1e-5
        eight_bit = getattr(reference, name)(image, factor).float() / 255
        assert (one - eight_bit).abs().max() <= 2 * LEVEL  # theirs cuts off to whole levels, in the mean grey too


def test_against_pil(images: Tensor) -> None:
    for name, factor in (("adjust_brightness", 1.3), ("adjust_contrast", 0.7), ("adjust_saturation", 1.4)):
        ours = getattr(photometric, name)(images.float() / 255, torch.full((6,), factor))
        for image, one in zip(images, ours, strict=True):
            pil = getattr(reference, name)(reference.to_pil_image(image), factor)
            assert (one - reference.pil_to_tensor(pil).float() / 255).abs().max() <= 2 * LEVEL


def test_grey(images: Tensor) -> None:
    ours = photometric.grey(images.float() / 255)
    assert (ours - reference.rgb_to_grayscale(images.float() / 255)).abs().max() < 1e-6
    assert (ours - reference.rgb_to_grayscale(images).float() / 255).abs().max() <= LEVEL


def test_hue_keeps_grey_pixels_and_a_full_turn_is_none(images: Tensor) -> None:
    values = images.float() / 255
    turned = photometric.adjust_hue(values, torch.full((6,), 0.27))
    assert torch.equal(turned[:3], values[:3])
    there_and_back = photometric.adjust_hue(
        photometric.adjust_hue(values, torch.full((6,), 0.3)), torch.full((6,), -0.3)
    )
    assert (there_and_back - values).abs().max() < 1e-5
    third = photometric.adjust_hue(values, torch.full((6,), 1 / 3))  # red to green to blue
    assert (third - values.roll(1, dims=1)).abs().max() < 1e-5


def test_blur(images: Tensor) -> None:
    values, sigmas = images.float() / 255, torch.tensor([0.1, 0.5, 1.0, 1.5, 2.0, 0.7])
    for size in (3, 7, 23):
        ours = photometric.gaussian_blur(values, sigmas, size)
        for image, one, sigma in zip(values, ours, sigmas.tolist(), strict=True):
            assert (one - reference.gaussian_blur(image, [size, size], [sigma, sigma])).abs().max() < 1e-5


def test_blur_too_wide_for_the_image() -> None:
    with pytest.raises(ValueError, match="a blur of 9 pixels needs images over 4 pixels, got 4 x 4"):
        photometric.gaussian_blur(torch.rand(1, 3, 4, 4), torch.ones(1), 9)


@pytest.mark.parametrize(("size", "expected"), [(224, 23), (96, 9), (64, 7), (32, 3), (16, 3), (160, 17)])
def test_kernel_is_the_odd_size_nearest_a_tenth(size: int, expected: int) -> None:
    assert photometric.kernel_size(size) == expected


def test_solarise(images: Tensor) -> None:
    values = torch.tensor([0.0, 0.25, 0.499, 0.5, 0.75, 1.0])
    assert photometric.solarise(values).tolist() == pytest.approx([0, 0.25, 0.499, 0.5, 0.25, 0])
    ours = photometric.solarise(images.float() / 255)
    assert (ours - reference.solarize(images, 128).float() / 255).abs().max() < 1e-6  # 128: 8-bit for 0.5
    assert torch.equal(ours, reference.solarize(images.float() / 255, 0.5))

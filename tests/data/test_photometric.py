"""Each operation equals torchvision's functional of the same parameters, sample by sample: float, 8-bit and PIL."""

import colorsys
import sys

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as reference

from ssl_hub.data import photometric
from ssl_hub.data.photometric import Operation
from ssl_hub.errors import UsageError
from tests.end_to_end.test_launchers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    from step_counts import Asked
finally:
    sys.path.pop(0)

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


def changed(change: Operation, images: Tensor, amounts: list[float] | None = None) -> Tensor:
    out = images.clone() if images.is_floating_point() else images.float() / 255
    change(out, torch.tensor([0.0] * len(out) if amounts is None else amounts)[:, None])
    return out


def blurred(
    images: Tensor, sigmas: list[float], size: int | None = None, blur: Operation = photometric.gaussian_blur
) -> Tensor:
    out = images.clone() if images.is_floating_point() else images.float() / 255
    blur(out, torch.from_numpy(photometric.blur_filters(np.array(sigmas), *out.shape[-2:], size)))
    return out


def as_float(pil: object) -> Tensor:
    return reference.pil_to_tensor(pil).float() / 255


@pytest.mark.parametrize(
    ("name", "factors", "tolerance_of_pil"),
    [
        ("adjust_brightness", [0.6, 1.4, 0.2, 1.8, 0.0, 1.0], 1),
        ("adjust_contrast", [0.6, 1.4, 0.2, 1.8, 0.0, 1.0], 1.6),  # PIL's mean grey is a whole level
        ("adjust_saturation", [0.8, 1.2, 0.6, 1.8, 0.0, 1.0], 1.6),
        ("adjust_hue", [-0.1, 0.1, 0.5, -0.5, 0.33, 0.0], None),
    ],
)
def test_jitter_operations(images: Tensor, name: str, factors: list[float], tolerance_of_pil: float | None) -> None:
    ours = changed(getattr(photometric, name), images, factors)
    for image, one, factor in zip(images, ours, factors, strict=True):
        exact = getattr(reference, name)(image.float() / 255, factor)
        assert (one - exact).abs().max() < 1e-5
        eight_bit = getattr(reference, name)(image, factor).float() / 255
        assert (one - eight_bit).abs().max() <= 2 * LEVEL  # theirs cuts off to whole levels, in the mean grey too
        pil = as_float(getattr(reference, name)(reference.to_pil_image(image), factor))
        if tolerance_of_pil is not None:
            assert (one - pil).abs().max() <= tolerance_of_pil * LEVEL
        else:
            # PIL keeps hue, saturation and the factor in 8 bits: the hue of dark or pale pixels is coarse there.
            assert (one - pil).abs().mean() <= 1.5 * LEVEL
            assert (one - pil).abs().max() <= 12 * LEVEL


def test_grey(images: Tensor) -> None:
    ours = changed(photometric.make_grey, images)
    for image, one in zip(images, ours, strict=True):
        assert (one - reference.rgb_to_grayscale(image.float() / 255, 3)).abs().max() < 1e-6
        assert (one - reference.rgb_to_grayscale(image, 3).float() / 255).abs().max() <= LEVEL
        pil = reference.rgb_to_grayscale(reference.to_pil_image(image), 3)
        assert (one - as_float(pil)).abs().max() <= LEVEL


def test_hue_keeps_grey_pixels_and_a_full_turn_is_none(images: Tensor) -> None:
    values = images.float() / 255
    assert torch.equal(changed(photometric.adjust_hue, values, [0.27] * 6)[:3], values[:3])
    there = changed(photometric.adjust_hue, values, [0.3] * 6)
    assert (changed(photometric.adjust_hue, there, [-0.3] * 6) - values).abs().max() < 1e-5
    third = changed(photometric.adjust_hue, values, [1 / 3] * 6)  # red to green to blue
    assert (third - values.roll(1, dims=1)).abs().max() < 1e-5


def test_hue_of_equal_and_tiny_channels() -> None:
    """Where two channels are the largest, and where the chroma is far below a grey level."""
    colours = torch.tensor(
        [[1, 1, 0], [0, 1, 1], [1, 0, 1], [0.5, 0.5, 0.25], [1e-7, 0, 0], [0.5, 0.5 + 6e-8, 0.5], [0, 1e-38, 0]]
    )
    images = colours[:, :, None, None].expand(-1, -1, 2, 2).contiguous()
    ours = changed(photometric.adjust_hue, images, [0.2] * len(images))
    expected = torch.stack([reference.adjust_hue(image, 0.2) for image in images])
    assert torch.isfinite(ours).all() and (ours - expected).abs().max() < 1e-5


def test_blur(images: Tensor) -> None:
    sigmas = [0.1, 0.5, 1.0, 1.5, 2.0, 0.7]
    for size in (3, 7, 23):
        ours = blurred(images, sigmas, size)
        for image, one, sigma in zip(images, ours, sigmas, strict=True):
            exact = reference.gaussian_blur(image.float() / 255, [size, size], [sigma, sigma])
            assert (one - exact).abs().max() < 1e-5
            pil = reference.gaussian_blur(reference.to_pil_image(image), [size, size], [sigma, sigma])
            assert (one - as_float(pil)).abs().max() <= LEVEL


def test_blur_of_a_sample_does_not_depend_on_the_others() -> None:
    images = torch.rand(3, 3, 40, 40, generator=torch.Generator().manual_seed(0))
    together, alone = blurred(images, [0.4, 2.0, 1.0], 23), blurred(images[:1], [0.4], 23)
    assert (together[:1] - alone).abs().max() < 1e-6


@pytest.mark.parametrize("blur", [photometric.gaussian_blur, photometric.blur_onto_zeros])
def test_blur_in_spans_is_blur_at_once(blur: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.rand(3, 3, 40, 52, generator=torch.Generator().manual_seed(0))
    spans = blurred(images, [0.4, 2.0, 1.0], blur=blur)
    monkeypatch.setattr(photometric, "_SPAN", 52)
    assert (blurred(images, [0.4, 2.0, 1.0], blur=blur) - spans).abs().max() < 1e-6


@pytest.mark.parametrize("side", [32, 224])
def test_blur_on_an_accelerator_is_a_handful_of_launches(side: int) -> None:
    images = torch.empty(4, 3, side, side, device="meta")
    filters = torch.from_numpy(photometric.blur_filters(np.linspace(0.1, 2, 4), side, side)).to("meta")
    with Asked() as asked:
        photometric.gaussian_blur(images, filters)
    assert sum(asked.launches.values()) <= 6, dict(asked.launches)  # a band, two products; a tap at a time took 55


def impulse(side: int, sigma: float) -> Tensor:
    """What a blur makes of one white pixel, over columns: sums to 1."""
    image = torch.zeros(1, 3, side, side)
    image[:, :, side // 2, side // 2] = 1
    return blurred(image, [sigma])[0, 0].sum(dim=0)


@pytest.mark.parametrize("side", [32, 64, 96, 160, 224])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.5, 2.0])
def test_blur_is_as_wide_as_it_was_asked_to_be(side: int, sigma: float) -> None:
    response = impulse(side, sigma)
    distances = torch.arange(side) - side // 2
    assert float(response.sum()) == pytest.approx(1, abs=1e-5)
    assert float((response * distances**2).sum().sqrt()) == pytest.approx(
        sigma, rel=0.08
    )  # half a pixel's is sampled coarsely


@pytest.mark.parametrize(("side", "sigma", "taps"), [(224, 2.0, 21), (224, 3.0, 23), (64, 0.7, 7), (64, 2.0, 13)])
def test_blur_has_the_size_of_the_paper_and_three_sigma_at_least(side: int, sigma: float, taps: int) -> None:
    """Taps beyond five sigma are below a hundredth of a thousandth, and left out."""
    assert int((impulse(side, sigma) > 0).sum()) == taps


def test_a_blur_wider_than_the_image_reaches_over_all_of_it() -> None:
    assert torch.isfinite(impulse(8, 40.0)).all() and int((impulse(8, 40.0) > 0.1).sum()) == 8


def test_blur_too_wide_for_the_image() -> None:
    with pytest.raises(UsageError, match="a blur of 9 pixels needs images over 4 pixels, got 4 x 4"):
        photometric.blur_filters(np.ones(1), 4, 4, 9)


@pytest.mark.parametrize(("size", "expected"), [(224, 23), (96, 9), (64, 7), (32, 3), (16, 3), (160, 17)])
def test_kernel_is_the_odd_size_nearest_a_tenth(size: int, expected: int) -> None:
    assert photometric.kernel_size(size) == expected


def test_solarise(images: Tensor) -> None:
    values = torch.tensor([0.0, 0.25, 0.499, 0.5, 0.75, 1.0])[None, None, None].expand(1, 3, 1, 6)
    assert changed(photometric.solarise, values)[0, 0, 0].tolist() == pytest.approx([0, 0.25, 0.499, 0.5, 0.25, 0])
    ours = changed(photometric.solarise, images)
    for image, one in zip(images, ours, strict=True):
        pil = reference.solarize(reference.to_pil_image(image), 128)  # 128: 8-bit for 0.5
        assert (one - as_float(pil)).abs().max() < 1e-6
        assert torch.equal(one, reference.solarize(image.float() / 255, 0.5))


def test_flip(images: Tensor) -> None:
    assert torch.equal(changed(photometric.flip, images), (images.float() / 255).flip(-1))


def test_byols_jitter_by_its_definition(images: Tensor) -> None:
    """Brightness an offset, contrast about each channel's mean, saturation that of HSV: written down once more."""
    pixels = images.double().numpy() / 255
    amounts = [-0.4, 0.4, 0.1, -0.2, 0.3, 0.0]
    shifted = np.clip(pixels + np.array(amounts)[:, None, None, None], 0, 1)
    assert np.abs(changed(photometric.shift_brightness, images, amounts).numpy() - shifted).max() < 1e-6
    factors = [0.6, 1.4, 0.8, 1.2, 0.0, 1.0]
    mean = pixels.mean(axis=(2, 3), keepdims=True)
    stretched = np.clip(mean + np.array(factors)[:, None, None, None] * (pixels - mean), 0, 1)
    assert np.abs(changed(photometric.stretch_channels, images, factors).numpy() - stretched).max() < 1e-6
    saturated = changed(photometric.scale_saturation, images, factors).numpy()
    for image, one, factor in zip(pixels, saturated, factors, strict=True):
        for before, after in zip(image.reshape(3, -1).T[::7], one.reshape(3, -1).T[::7], strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*before)
            assert after == pytest.approx(colorsys.hsv_to_rgb(hue, min(saturation * factor, 1), value), abs=1e-5)


def test_a_blur_onto_zeros_darkens_the_edges_alone() -> None:
    white = torch.ones(1, 3, 40, 40)
    dark = blurred(white, [2.0], blur=photometric.blur_onto_zeros)[0, 0]
    assert dark[20, 20].item() == pytest.approx(1) and dark[0, 20].item() == pytest.approx(0.6, abs=0.01)
    assert (blurred(white, [2.0]) - white).abs().max() < 1e-5

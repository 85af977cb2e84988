"""Images beside each other over captions, for people to look at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

GAP, BELOW = 8, 34  # pixels: between images, and two lines of text below each

Captioned = tuple[Image.Image, str]


def row_of(images: Sequence[Captioned], side: int = 112, *, apart: int = 0) -> Image.Image:
    """One row of images of ``side`` pixels over their captions of up to two lines; a gap follows each ``apart`` images
    (none for 0), which sets off the first of a list, or pairs."""
    import matplotlib

    font = ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf", 11)
    gaps = [GAP * (place // apart) if apart else 0 for place in range(len(images))]
    row = Image.new("RGB", (GAP + (side + GAP) * len(images) + max(gaps, default=0), side + BELOW + GAP), "white")
    draw = ImageDraw.Draw(row)
    for place, (image, caption) in enumerate(images):
        left = GAP + place * (side + GAP) + gaps[place]
        method = Image.Resampling.NEAREST if max(image.size) < side else Image.Resampling.LANCZOS
        row.paste(ImageOps.fit(image, (side, side), method), (left, GAP))
        for line, text in enumerate(caption.splitlines()):
            draw.text((left, GAP + side + 3 + 14 * line), _fitted(text, font, side), fill="#333333", font=font)
    return row


def stacked(rows: Sequence[Image.Image]) -> Image.Image:
    """Rows below each other."""
    sheet = Image.new("RGB", (max(row.width for row in rows), sum(row.height for row in rows)), "white")
    top = 0
    for row in rows:
        sheet.paste(row, (0, top))
        top += row.height
    return sheet


def _fitted(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """The text, its end replaced by an ellipsis where it is wider than ``width`` pixels."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"

"""Progress where there is no terminal: a line now and then, and nothing from processes that are not to speak."""

from ssl_hub.evaluate import progress
from ssl_hub.evaluate.progress import Progress


def test_lines_say_what_is_done_and_left(capsys, monkeypatch):
    clock = iter([0.0, 10.0, 40.0, 50.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with Progress("features of digits/train", 100, "images") as shown:
        shown.advance(10)
        shown.advance(10, "epoch 1 of 2")
        shown.advance(10)
    line = "features of digits/train: 20 of 100 images, 2:40 left, epoch 1 of 2\n"  # 40 s for 20, so 160 s for 80
    assert capsys.readouterr().err == line


def test_without_a_name_nothing_is_said(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0)
    with Progress(None, 3, "images") as shown:
        shown.advance(3)
    assert capsys.readouterr() == ("", "")

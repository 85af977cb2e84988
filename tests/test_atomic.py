"""Files that are old or new and never half, and what is left of those who were killed."""

from pathlib import Path

from ssl_hub.atomic import sweep


def test_only_what_killed_writers_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    leftover, theirs = tmp_path / "checkpoints" / ".step-00000003.pt.77.part", tmp_path / "download.part"
    for path in (leftover, theirs):
        path.write_bytes(b"half")
    sweep(tmp_path)
    assert theirs.exists() and not leftover.exists()

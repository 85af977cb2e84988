"""Every command and code block of the README and the documentation runs as it is printed; see ``blocks``."""

import os
from pathlib import Path

import blocks
import pytest
from blocks import ROOT, Block, BlockFailed, blocks_in

from tests import warm

PAGES = ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]
TAKES_MINUTES = [page for page in PAGES if "<!-- needs: minutes -->" in (ROOT / page).read_text()]


def run_apart(text: str, page: str, folder: Path, *, minutes: bool = False) -> None:
    """Run a page in a process of its own."""
    words = [blocks.__file__, text, page, str(folder), "minutes" if minutes else ""]
    done = warm.run(words, env=dict(os.environ), timeout=3600)
    if done.returncode:
        raise BlockFailed(done.stderr)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run(page: str, tmp_path: Path):
    run_apart((ROOT / page).read_text(), page, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", TAKES_MINUTES)
def test_blocks_that_take_minutes_run(page: str, tmp_path: Path):
    run_apart((ROOT / page).read_text(), page, tmp_path, minutes=True)


def test_finds_blocks_with_their_lines_and_needs():
    text = "a\n```python\nx = 1\n```\n\n<!-- needs: gpu, data -->\n```bash\nmake it\n```\n``` text\nout\n```\n"
    assert blocks_in(text, "page.md") == [
        Block("page.md", 2, "python", "x = 1\n", ()),
        Block("page.md", 7, "bash", "make it\n", ("gpu", "data")),
        Block("page.md", 10, "text", "out\n", ()),
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("```\nls\n```\n", "page.md:1 is 'nothing'", id="language"),
        pytest.param("<!-- needs: luck -->\n```bash\nls\n```\n", "page.md:2 needs ('luck',), expected", id="need"),
    ],
)
def test_a_block_that_would_go_unnoticed_is_an_error(text: str, error: str):
    with pytest.raises(BlockFailed) as raised:
        blocks_in(text, "page.md")
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("need", "language", "code", "error"),
    [
        (None, "python", "assert 1 + 1 == 3", "AssertionError"),
        (None, "bash", "ssl-hub show byol-digit", "unknown recipe 'byol-digit'; did you mean 'byol-digits'?"),
        (None, "bash", "ls missing | cat && false", "exit code 1 from: ls missing"),
        ("gpu", "python", "x =", "SyntaxError"),
        ("gpu", "bash", "ssl-hub knn X --kk 3", "unrecognized arguments: --kk"),
        ("gpu", "bash", "torchrun recipes/train.py byol-digits optim.lrr=1", "unknown setting 'optim.lrr'"),
        ("gpu", "bash", "torchrun -m ssl_hub train byol-digits optim.lrr=1", "unknown setting 'optim.lrr'"),
        ("data", "bash", "python benchmarks/gone.py", "there is no benchmarks/gone.py"),
        ("data", "bash", "make gone", "no target 'gone'"),
    ],
)
def test_what_is_wrong_with_a_block_is_found(tmp_path: Path, need: str | None, language: str, code: str, error: str):
    marker = f"<!-- needs: {need} -->\n" if need else ""
    with pytest.raises(BlockFailed) as raised:
        run_apart(f"{marker}```{language}\n{code}\n```\n", "page.md", tmp_path)
    assert error in str(raised.value)

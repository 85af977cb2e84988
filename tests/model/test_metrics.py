"""metrics.jsonl: what a kill leaves is left out, what is no log is refused, and a resumed run rewrites its own part."""

import pytest

from ssl_hub.errors import UsageError
from ssl_hub.model.metrics import METRICS, Metrics, read_metrics


def test_half_a_line_is_left_out_and_later_steps_are_dropped_on_resume(tmp_path):
    (tmp_path / METRICS).write_text('{"step": 5}\n{"step": 10}\n{"ste')
    assert read_metrics(tmp_path) == [{"step": 5}, {"step": 10}]
    metrics = Metrics(tmp_path, from_step=5)
    metrics.write({"step": 7})
    metrics.close()
    assert read_metrics(tmp_path) == [{"step": 5}, {"step": 7}]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[1, 2]\n", b'{"loss": 1.0}\n'])
def test_a_file_that_is_no_log_is_named_and_stays(tmp_path, content):
    (tmp_path / METRICS).write_bytes(content)
    with pytest.raises(UsageError, match=r"metrics\.jsonl is no training log"):
        read_metrics(tmp_path)
    with pytest.raises(UsageError, match=r"metrics\.jsonl is no training log"):
        Metrics(tmp_path, from_step=0)
    assert (tmp_path / METRICS).read_bytes() == content

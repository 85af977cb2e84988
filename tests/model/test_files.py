"""hashes.json: it follows what the package writes, and notices what something else wrote."""

import pytest

from ssl_hub.errors import UsageError
from ssl_hub.model.files import CONFIG, HASHES, MODEL, RESULTS_FILE, changed, read_hashes, readable, record, seal
from ssl_hub.model.results import Result, append_results, check_results


@pytest.fixture
def sealed(tmp_path):
    (tmp_path / CONFIG).write_text("{}")
    (tmp_path / MODEL).write_bytes(b"weights")
    (tmp_path / "metrics.jsonl").write_text("not part of a release")
    seal(tmp_path)
    return tmp_path


def test_the_files_of_a_release_are_noted_and_no_others(sealed):
    assert read_hashes(sealed).keys() == {CONFIG, MODEL}
    assert changed(sealed, [CONFIG, MODEL]) == []


def test_a_changed_and_an_unknown_file_are_noticed(sealed):
    (sealed / MODEL).write_bytes(b"weightz")
    (sealed / RESULTS_FILE).write_text("[]")
    assert changed(sealed, [CONFIG, MODEL, RESULTS_FILE, "absent"]) == [MODEL, RESULTS_FILE]


def test_the_packages_own_writers_keep_the_hashes_right(sealed):
    append_results(sealed, [Result(metric="top1", value=1.0, dataset="d", split="test", protocol="knn")])
    assert changed(sealed, [CONFIG, MODEL, RESULTS_FILE]) == []
    (sealed / RESULTS_FILE).unlink()
    record(sealed, CONFIG, RESULTS_FILE)
    assert read_hashes(sealed).keys() == {CONFIG, MODEL}


def test_what_was_damaged_or_lost_is_not_certified_by_a_write_of_something_else(sealed):
    (sealed / MODEL).write_bytes(b"weightz")
    (sealed / CONFIG).unlink()
    append_results(sealed, [Result(metric="top1", value=1.0, dataset="d", split="test", protocol="knn")])
    assert changed(sealed, [MODEL, RESULTS_FILE]) == [MODEL]
    assert CONFIG in read_hashes(sealed)
    with pytest.raises(UsageError, match=r"model\.safetensors is not the file that hashes\.json lists"):
        check_results(sealed)


@pytest.mark.parametrize(("size", "said"), [(0, "0 B"), (999, "999 B"), (12_345, "12.3 kB"), (999_960, "1.0 MB")])
def test_sizes_are_said_in_the_unit_that_fits(size, said):
    assert readable(size) == said


def test_where_no_hashes_are_kept_none_are_begun(tmp_path):
    append_results(tmp_path, [Result(metric="top1", value=1.0, dataset="d", split="test", protocol="knn")])
    assert read_hashes(tmp_path) is None and changed(tmp_path, [RESULTS_FILE]) == []


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"sha256": 3}'])
def test_damaged_hashes_are_an_error_that_names_the_file(sealed, content):
    (sealed / HASHES).write_text(content)
    with pytest.raises(UsageError, match=r"hashes\.json holds no hashes"):
        read_hashes(sealed)

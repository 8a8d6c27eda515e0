import pytest

from matrix.handoff import check


def test_a_pattern_that_matches_whole_files_is_fine(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.json").write_text("{}")
    assert check(tmp_path / "out", "files") == []
    assert check(f"{tmp_path}/out/*.json", "files") == []
    assert check(f"{tmp_path}/**/*.json", "files") == []


@pytest.mark.parametrize("pattern", ["missing.json", "*.csv", "out/**/*.bin"])
def test_a_pattern_without_a_match_is_named(tmp_path, pattern):
    (problem,) = check(tmp_path / pattern, "files")
    assert problem.file.endswith(pattern)
    assert problem.what in ("is not there", "matches no file")


def test_an_empty_file_among_whole_ones_is_named(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json").write_text("")
    assert [(p.file, p.what) for p in check(f"{tmp_path}/*.json", "files")] == [(str(tmp_path / "b.json"), "is empty")]


def test_an_empty_folder_and_a_dangling_link_are_named(tmp_path):
    (tmp_path / "d").mkdir()
    assert check(tmp_path / "d", "files")[0].what == "is an empty folder"
    (tmp_path / "l").symlink_to(tmp_path / "nowhere")
    assert check(tmp_path / "*", "files")[-1].what == "a link that leads nowhere"


def test_a_file_still_being_written_does_not_count(tmp_path):
    (tmp_path / "a.json.tmp").write_text("{")
    assert "still being written" in check(f"{tmp_path}/*", "files")[0].what


def test_a_literal_name_with_brackets_is_found(tmp_path):
    (tmp_path / "run[1].json").write_text("{}")
    assert check(tmp_path / "run[1].json", "files") == []

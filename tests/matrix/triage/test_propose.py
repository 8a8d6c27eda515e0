"""Rules proposed from corrections."""

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.history.feedback import Feedback, add
from matrix.history.store import open_store
from matrix.triage.propose import regex_of

LINE = "shardd: quota of 12 GiB used up for /data/run-7/shard (id 0x7f12): that's final"


@pytest.fixture
def new(tmp_path):
    (tmp_path / "matrix.yaml").write_text("")
    url = f"sqlite:///{tmp_path}/h.sqlite"
    store = open_store(url)
    common = {"at": 1.0, "author": "ann", "url": "u", "right": False, "category": "unknown"}
    with store.begin() as c:
        add(c, [
            Feedback("comment-1-1", **common, corrected_category="shard_quota", corrected_line=3, text=LINE),
            Feedback("comment-2-1", **common, corrected_category="disk_full", text=LINE),
            Feedback("comment-3-1", **common, corrected_category="disk_full", text="0x12 17/3"),
            Feedback("reaction-4", **common),
        ])  # fmt: skip
    store.close()

    def run(*args):
        return subprocess.run(
            ["matrix", "rules", *args], capture_output=True, text=True, cwd=tmp_path, timeout=100,
            env={**__import__("os").environ, "MATRIX_HISTORY": url, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        )  # fmt: skip

    return run


def test_a_correction_becomes_a_rule_that_passes_the_check(new, tmp_path):
    done = new("new", "--from-feedback", "comment-1-1", "--write")
    assert done.returncode == 0, done.stderr
    written = (tmp_path / ".matrix" / "rules" / "shard_quota.yaml").read_text()
    assert LINE in written
    assert "acme" not in written.replace("example.org/acme-store", "").replace("acme-store: opened", "")
    checked = new("check")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_for_a_category_that_there_is_the_lines_to_add_are_printed(new):
    done = new("new", "--from-feedback", "comment-2-1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("patterns:\n  - {id: disk-full-comment-2-1, regex: 'shardd: +quota")


@pytest.mark.parametrize(
    ("ident", "said"),
    [
        ("comment-9-1", "no feedback has the id"),
        ("reaction-4", "no category was named"),
        ("comment-3-1", "no line that says"),
    ],
)
def test_what_is_no_use_is_refused_with_what_to_do(new, ident, said):
    done = new("new", "--from-feedback", ident)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_another_run_of_the_same_failure_fits_and_another_failure_does_not():
    regex = regex_of(LINE)
    assert re.search(regex, LINE.replace("12", "13").replace("run-7/shard", "b/c-d").replace("0x7f12", "0xa"))
    assert not re.search(regex, "shardd: quota of 12 GiB is left for /data/run-7/shard (id 0x7f12): that's final")


@given(st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=300))
def test_the_expression_compiles_and_fits_its_own_line(text):
    regex = regex_of(text)
    assert re.compile(regex).search(text.strip()) or not text.strip()

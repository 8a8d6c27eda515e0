"""The change that `/quarantine` makes, from texts of the file."""

import re
import subprocess

import pytest
from hostile import mix
from hypothesis import given
from hypothesis import strategies as st
from rendering import problems

from bot.quarantining import QUARANTINE, Wish, change_for, open_pull, patch_text
from matrix.errors import UsageError
from matrix.history import quarantine

WISH = Wish(
    "t/b.py::new", "123", "flaky since the port moved", "https://github.com/o/r/pull/7#issuecomment-1", "2026-12-01"
)
ENTRY = 'test: "t/a.py::old"\n    owner: x\n    reason: y\n    issue: z\n    expires: 2027-01-31'


def entries(text):
    return quarantine.read(text.encode(), "q").entries


@pytest.mark.parametrize(
    "old",
    [
        "", "\n", "quarantine: []\n", "# why\nquarantine: []", f"quarantine:\n  - {ENTRY}\n", f"quarantine:\n  - {ENTRY}",
        f"quarantine:\n- {ENTRY.replace('    ', '  ')}\n", f"quarantine:\n    - {ENTRY.replace('    ', '      ')}\n\n# end\n",
    ],
)  # fmt: skip
def test_the_patch_applies_and_the_matrix_reads_what_it_makes(tmp_path, old):
    change = change_for(WISH, old)
    patch = re.search(r"```diff\n(.*)\n```", patch_text(change), re.DOTALL)[1] + "\n"
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    file = tmp_path / QUARANTINE
    if old:
        file.parent.mkdir()
        file.write_text(old)
    subprocess.run(["git", "apply", "-"], input=patch, text=True, cwd=tmp_path, check=True)
    made = entries(file.read_text())[-1]
    assert (made.test, made.owner, made.reason) == ("t/b.py::new", "123", "flaky since the port moved")
    assert (made.issue, made.expires) == (WISH.url, "2026-12-31")
    assert file.read_text().count("# ") == old.count("# ")


@pytest.mark.parametrize(
    ("old", "says"),
    [
        ("quarantine: {a: 1}\n", "quarantine"), ("tests:\n  - test: a\n", "tests"), ("quarantine: [{test: a}]", "owner"), ("a: [", ""), ("quarantine:\n", "must be a list"),
        ("quarantine: [{test: a, owner: b, reason: c, issue: d, expires: 2027-01-31}]\n", "cannot add to"),
        (f"quarantine:\n  - {ENTRY.replace('t/a.py::old', WISH.test)}\n", "already, until 2027-01-31"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_added_to_is_said(old, says):
    with pytest.raises(UsageError) as e:
        change_for(WISH, old)
    assert says in e.value.message


def test_an_entry_whose_time_is_over_is_no_hindrance():
    old = f"quarantine:\n  - {ENTRY.replace('t/a.py::old', WISH.test).replace('2027-01-31', '2026-12-01')}\n"
    assert len(entries(change_for(WISH, old).new)) == 2


@given(st.randoms(use_true_random=False))
def test_no_reason_breaks_the_file_or_is_live_in_the_pull_request(chance):
    wish = Wish(WISH.test, "wendy-123", mix(chance), WISH.url, WISH.today)
    try:
        change = change_for(wish, "")
    except UsageError:
        return  # nothing is left of the reason once it is cleaned, or YAML cannot hold it
    wanted = open_pull(wish, change, "main")
    assert not problems(wanted.body, (WISH.url,))
    assert not problems(patch_text(change))

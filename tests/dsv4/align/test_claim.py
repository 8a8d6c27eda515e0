"""`dsv4 claim`: claims are checked, never believed."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from dsv4.align.bits import decimal20, loss_md5
from dsv4.align.claim import check_text
from dsv4.commands.claim import command

REPORT = """[DSv4] Support the aligned loop

main_matches=200/200
mtp_matches=200/200
first_main_diff=None
first_mtp_diff=None
step100 main final_loss=0.74668949842453002930 md5=9d82f1177a18c2810367a158003c281c
step100 mtp final_loss=4.16679096221923828125 md5=d36254d4f44da16479cafc2199f8d41b
"""


def run(text, *options):
    return CliRunner().invoke(command, ["-", *options], input=text, standalone_mode=False)


def verdicts(text):
    return [(c.kind, c.loss, c.verdict) for c in check_text(text)]


def test_the_original_report_is_consistent_but_not_proven():
    done = run(REPORT)
    assert done.return_value == 0
    assert "claims=6 consistent=6 inconsistent=0 cannot-tell=0 proven=0" in done.output
    assert "main_matches=200/200: consistent, not proven" in done.output
    assert "reference: not named" in done.output


def test_one_changed_digit_of_an_md5_or_a_loss_is_found():
    assert run(REPORT.replace("9d82f", "9d83f")).return_value == 1
    assert run(REPORT.replace("4.16679", "4.16678")).return_value == 1


def test_a_count_that_contradicts_its_first_difference_is_found():
    text = "main_matches=200/200\nfirst_main_diff=step 7 micro 1: 5.1 != 5.2\n"
    assert verdicts(text) == [("count", "main", "consistent"), ("first_diff", "main", "inconsistent")]
    text = "mtp_matches=199/200\nfirst_mtp_diff=None\n"
    assert verdicts(text)[1] == ("first_diff", "mtp", "inconsistent")
    assert verdicts("main md5 diff 0/10\nfirst_main_diff=None")[1] == ("first_diff", "main", "consistent")


@pytest.mark.parametrize("text", ["main_matches=201/200", "mtp matches: 0/0"])
def test_counts_that_cannot_be_are_inconsistent(text):
    assert [v for _, _, v in verdicts(text)] == ["inconsistent"]


@pytest.mark.parametrize(
    "text",
    [
        "`final_loss=0.74668949842453002930` `md5=9d82f1177a18c2810367a158003c281c`",
        "final\\_loss=0.74668949842453002930 md5=9D82F1177A18C2810367A158003C281C",
        "\x1b[32mfinal_loss: rank=0 val=0.74668949842453002930 md5=9d82f1177a18c2810367a158003c281c\x1b[0m",
        "| main | 0.74668949842453002930 | 9d82f1177a18c2810367a158003c281c |",
        "final loss 0.74668949842453002930 (md5: 9d82f1177a18c2810367a158003c281c)",
        '{"final_loss": 0.74668949842453002930, "md5": "9d82f1177a18c2810367a158003c281c"}',
        "md5=9d82f1177a18c2810367a158003c281c final_loss=0.74668949842453002930",
        "main final_loss=0.74668949842453002930\n  md5=9d82f1177a18c2810367a158003c281c",
        "final_loss=0.746689 md5=9d82f1177a18c2810367a158003c281c",
    ],
)
def test_pairs_are_found_in_the_forms_people_write(text):
    assert [(k, v) for k, _, v in verdicts(text)] == [("pair", "consistent")]


def test_the_line_of_a_claim_is_that_of_its_value():
    text = "a\nb\nmtp final_loss=0.74668949842453002930\nmd5=9d82f1177a18c2810367a158003c281c\nmain_matches=1/1\n"
    assert [(c.line, c.loss) for c in check_text(text)] == [(3, "mtp"), (5, "main")]


def test_pairs_glued_to_one_line_keep_their_names():
    text = REPORT.splitlines()
    assert verdicts(text[6] + text[7]) == [("pair", "main", "consistent"), ("pair", "mtp", "consistent")]


def test_a_value_printed_too_short_to_be_checked_is_said_to_be_so():
    assert verdicts("final_loss=0.7 md5=9d82f1177a18c2810367a158003c281c") == [("pair", None, "cannot-tell")]


def test_a_cut_md5_is_inconsistent():
    assert verdicts("final_loss=0.74668949842453002930 md5=9d82f1177a18")[0][2] == "inconsistent"


def test_dates_after_the_word_main_are_no_claims():
    assert verdicts("merged into main 12/01, see main 2026/11") == []


def test_a_text_without_claims_fails_and_says_so():
    done = run("Fix a typo\n")
    assert done.return_value == 1
    assert "no claim found" in done.stderr


def test_json_is_one_document():
    document = json.loads(run(REPORT, "--json").stdout)
    assert (document["schema"], document["proven"], len(document["claims"])) == ("claim/1", False, 6)


@given(st.floats(width=32, min_value=2.0**-40, max_value=2.0**40), st.integers(0, 31))
def test_every_true_pair_is_consistent_and_every_other_md5_is_not(value, position):
    md5 = loss_md5(value)
    printed = decimal20(float(np.float32(value)))
    assert verdicts(f"main final_loss={printed} md5={md5}")[0][2] != "inconsistent"
    wrong = md5[:position] + ("0" if md5[position] != "0" else "1") + md5[position + 1 :]
    assert verdicts(f"main final_loss={printed} md5={wrong}")[0][2] != "consistent"


@given(st.text())
def test_any_text_is_read_without_an_error(text):
    check_text(text)

"""Facts and test results, written by strangers."""

import json

import pytest

from matrix.run.results import MAX_FACTS, read_facts, read_junit

JUNIT = """<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest">
<testcase classname="tests.a.test_b.TestC" name="test_d[x]" time="0.5"><failure message="m">t</failure></testcase>
<testcase classname="tests.a.test_b" name="test_e" time="0.25" />
<testcase classname="tests.a.test_b" name="test_s" time="bad"><skipped /></testcase>
<testcase classname="tests.a.test_b" name="test_f" time="1"><error message="set-up" /></testcase>
<testcase classname="" name="tests.broken" time="0"><error message="collection failure" /></testcase>
</testsuite></testsuites>"""


def test_junit_tells_what_ran_and_what_failed(tmp_path):
    path = tmp_path / "junit.xml"
    path.write_text(JUNIT)
    tests = read_junit(path)
    assert (tests.ran, tests.skipped) == (4, 1)
    assert tests.failing == ["tests/a/test_b.py::TestC::test_d[x]", "tests/a/test_b.py::test_f", "tests.broken"]


@pytest.mark.parametrize(
    "text", ["", "<testsuites>", "no xml", '<!DOCTYPE a [<!ENTITY b "c">]><testsuites/>', "<!ENTITY x><testsuites/>"]
)
def test_a_broken_or_hostile_file_is_none(tmp_path, text):
    path = tmp_path / "junit.xml"
    path.write_text(text)
    assert read_junit(path) is None
    assert read_junit(tmp_path / "gone") is None


def test_facts_are_kept_with_their_line(tmp_path):
    path = tmp_path / "facts"
    path.write_text(
        '{"key": "a", "value": {"b": [1]}}\n\nnonsense\n{"key": 3, "value": 1}\n{"key": "c", "value": null}\n'
    )
    facts = read_facts(path, "x")
    assert [(f.key, f.value, f.source) for f in facts] == [
        ("a", {"b": [1]}, "x:1"),
        ("c", None, "x:5"),
        ("facts_unreadable", "2 lines", "x:3"),
    ]


def test_facts_are_bounded(tmp_path):
    path = tmp_path / "facts"
    path.write_text("".join(json.dumps({"key": str(i), "value": i}) + "\n" for i in range(MAX_FACTS + 50)))
    assert len(read_facts(path, "x")) == MAX_FACTS
    path.write_text(json.dumps({"key": "a", "value": "x" * 200_000}))
    assert [f.key for f in read_facts(path, "x")] == ["facts_unreadable"]
    assert read_facts(tmp_path / "gone", "x") == []

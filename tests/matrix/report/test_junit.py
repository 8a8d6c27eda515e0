from xml.dom import minidom
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matrix.report import junit

anything = st.text(st.characters(exclude_categories=[]), max_size=60)
# What Jenkins' and GitLab's readers know of the format.
ALLOWED = {
    "testsuites": {"name", "tests", "failures", "errors", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"classname", "name", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
    "system-out": set(),
}


def parsed(run, folder) -> ET.Element:
    path = junit.write(run, folder)
    assert path.name == "junit.xml"
    minidom.parse(str(path))
    return ET.parse(path).getroot()


def test_each_job_is_a_case_and_blocked_ones_are_skipped(runs, tmp_path):
    root = parsed(runs.cascade(), tmp_path)
    outcomes = {c.get("name"): [e.tag for e in c if e.tag != "system-out"] for c in root.iter("testcase")}
    assert outcomes == {
        "unit": [],
        "qwen-sft": ["failure"],
        "qwen-lora": ["skipped"],
        "qwen-eval": ["skipped"],
        "qwen3vl-fsdp": ["failure"],
        "flaky": ["skipped"],
        "gemma4": ["skipped"],
    }
    assert root.get("tests") == "7"
    assert root.get("failures") == "2"
    assert sum(int(s.get("tests")) for s in root) == 7
    assert sum(int(s.get("skipped")) for s in root) == 4


def test_a_failure_carries_category_evidence_and_the_way_to_run_it_again(runs, tmp_path):
    root = parsed(runs.cascade(), tmp_path)
    failure = root.find(".//testcase[@name='qwen3vl-fsdp']/failure")
    assert failure.get("type") == "rank_abort_teardown"
    assert "terminate called" in failure.get("message")
    for part in (
        "logs/qwen3vl-fsdp/1.log:3",
        "tests/a.py::test_b[bf16]",
        "matrix rerun 20261201-093011-7f3a qwen3vl-fsdp",
    ):
        assert part in failure.text


def test_only_elements_and_attributes_that_readers_know_are_used(runs, tmp_path):
    for element in parsed(runs.cascade(), tmp_path).iter():
        assert set(element.attrib) <= ALLOWED[element.tag]


@pytest.mark.parametrize(("status", "tag"), [("timeout", "failure"), ("cancelled", "error"), ("error", "error")])
def test_the_kind_of_end_decides_the_element(runs, tmp_path, status, tag):
    root = parsed(runs.run_of(runs.job("a", status)), tmp_path)
    assert root.find(f".//testcase/{tag}") is not None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(anything, anything, anything)
def test_arbitrary_text_gives_valid_xml_with_the_same_structure(runs, tmp_path, name, text, test):
    log = tmp_path / "logs" / "x" / "1.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text, errors="replace")
    job = runs.job("x", "failed", runs.cause("unknown", text, 1), suite=name, failing_tests=[test], reason=text)
    job.name = name
    root = parsed(runs.run_of(job, host=name), tmp_path)
    assert [e.tag for e in root.iter()].count("testcase") == 1
    assert len(root.findall("./testsuite/testcase/failure")) == 1

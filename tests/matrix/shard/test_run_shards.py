"""`matrix run` on a suite in shards."""

import json
import subprocess
import xml.etree.ElementTree as ET

import pytest

MATRIX = """
defaults: {env: {PYTEST_DISABLE_PLUGIN_AUTOLOAD: 1}, timeout: 2m}
suites:
  unit:
    jobs:
      unit: {pytest: {targets: ., args: [-q, -p, no:cacheprovider]}, shards: 2, paths: "**"}
"""
TESTS = """
import os, pytest
VALUES = range(6 if os.environ["MATRIX_JOB"].endswith("1of2") else LAST)
@pytest.mark.parametrize("i", VALUES)
def test_it(i): pass
"""


def run(folder, last):
    (folder / "matrix.yaml").write_text(MATRIX)
    (folder / "test_it.py").write_text(TESTS.replace("LAST", str(last)))
    done = subprocess.run(["matrix", "run", "--json"], cwd=folder, capture_output=True, text=True, timeout=120)
    return done, json.loads(done.stdout)


@pytest.mark.timeout(120)
def test_the_shards_of_a_run_are_the_suite_and_their_times_are_kept(tmp_path):
    done, record = run(tmp_path, 6)
    assert done.returncode == 0, done.stderr
    assert {j["name"]: j["status"] for j in record["jobs"]} == {
        "unit@shard=1of2": "passed",
        "unit@shard=2of2": "passed",
    }
    results = (tmp_path / ".matrix" / "runs").rglob("logs/**/junit.xml")
    ran = sorted(case.get("name") for path in results for case in ET.parse(path).iter("testcase"))
    assert ran == [f"test_it[{i}]" for i in range(6)]
    assert len(json.loads((tmp_path / ".matrix" / "times" / "unit.json").read_text())) == 6


@pytest.mark.timeout(120)
def test_shards_that_collect_different_tests_are_told_of(tmp_path):
    done, record = run(tmp_path, 5)
    facts = [f for j in record["jobs"] for f in j["facts"] if f["key"] == "shards_differ"]
    assert len(facts) == 2
    assert "shard 1 collected 6, shard 2 collected 5" in facts[0]["value"]
    assert "some may have been run by none" in done.stderr

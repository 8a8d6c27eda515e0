"""A suite in shards: disjoint, complete, of about equal time, and run by real pytest processes."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.shard.matrix_pytest_shard import assign, read_times
from matrix.shard.times import disagreement, keep, pin
from matrix.spec.build import SHARD_SCRIPT

TESTS = st.sets(st.builds("test_{}.py::test_{}".format, st.integers(0, 5), st.integers(0, 30)), min_size=1, max_size=60)
TIMES = st.dictionaries(
    st.builds("test_{}.py::test_{}".format, st.integers(0, 6), st.integers(0, 40)), st.floats(0, 1000), max_size=60
)


@given(TESTS, TIMES, st.integers(1, 8))
def test_shards_are_disjoint_and_together_the_suite(tests, times, shards):
    parts = assign(tests, times, shards)
    assert len(parts) == shards
    assert sorted(test for part in parts for test in part) == sorted(tests)
    assert all(parts) or len(tests) < shards, "no shard is empty where there are tests enough"


@given(TESTS, TIMES, st.integers(1, 8), st.randoms(use_true_random=False))
def test_the_order_of_collection_does_not_matter(tests, times, shards, r):
    shuffled = list(tests)
    r.shuffle(shuffled)
    assert assign(shuffled, times, shards) == assign(sorted(tests), times, shards)


@given(TESTS, TIMES, st.integers(1, 8))
def test_no_shard_is_longer_than_its_share_and_one_test(tests, times, shards):
    known = sorted(times[t] for t in tests if times.get(t, 0) > 0)
    if len(known) < len(tests):
        return
    loads = [sum(times[t] for t in part) for part in assign(tests, times, shards)]
    assert max(loads) <= 1.1 * sum(loads) / shards + max(known) + 1e-6


def test_files_stay_whole_where_that_is_even():
    tests = [f"test_{f}.py::test_{i}" for f in "abcd" for i in range(5)]
    parts = assign(tests, {}, 2)
    assert [sorted({t.split("::")[0] for t in part}) for part in parts] == [
        ["test_a.py", "test_c.py"],
        ["test_b.py", "test_d.py"],
    ]


def test_one_long_file_is_cut():
    tests = [f"test_a.py::test_{i}" for i in range(40)] + ["test_b.py::test_0"]
    assert max(len(part) for part in assign(tests, {}, 4)) <= 12


def test_a_long_test_gets_a_shard_of_its_own():
    times = {f"test_a.py::test_{i}": 1.0 for i in range(10)} | {"test_a.py::test_slow": 10.0}
    parts = assign(times, times, 2)
    assert ["test_a.py::test_slow"] in parts


SUITE = {
    "conftest.py": "import pytest\n",
    "test_one.py": "import pytest\n@pytest.mark.parametrize('i', range(7))\ndef test_p(i): pass\n",
    "pkg/test_two.py": "import time\nclass TestT:\n    def test_fast(self): pass\n    def test_slow(self): time.sleep(0.05)\n",
    "pkg/test_three.py": "import helper\ndef test_cwd_is_importable(): assert helper.x == 1\ndef test_dropped(): assert False\n",
    "helper.py": "x = 1\n",
}


@pytest.fixture
def suite(tmp_path):
    for name, text in SUITE.items():
        path = tmp_path / "repo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "repo"


def run(suite, shard, *arguments, times=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHONPATH"))}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # starting is quicker without what other tests need
    env |= {"MATRIX_SHARD_TIMES": str(times)} if times else {}
    junit = suite.parent / f"{shard.replace('/', '-')}.xml"
    command = [
        sys.executable,
        str(SHARD_SCRIPT),
        shard,
        ".",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={junit}",
        *arguments,
    ]
    done = subprocess.run(command, cwd=suite, env=env, capture_output=True, text=True, timeout=120)
    ran = (
        {f"{c.get('classname')}.{c.get('name')}" for c in ET.parse(junit).iter("testcase")} if junit.exists() else set()
    )
    return done, ran


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["one process", "xdist"])
def test_real_shards_run_every_test_once_and_leave_their_times(suite, tmp_path, workers):
    times = tmp_path / "times"
    pin(tmp_path / "none.json", times)
    parts = []
    for i in (1, 2):
        done, ran = run(suite, f"{i}/2", "-k", "not dropped", *workers, times=times)
        assert done.returncode == 0, done.stdout + done.stderr
        parts.append(ran)
    assert not parts[0] & parts[1]
    assert len(parts[0] | parts[1]) == 10
    assert disagreement(times) is None
    left = [json.loads((times / f"shard-{i}of2.json").read_text()) for i in (1, 2)]
    assert [s["collected"] for s in left] == [10, 10]
    assert keep(times, tmp_path / "store.json") == 10
    known = json.loads((tmp_path / "store.json").read_text())
    assert max(known, key=known.get) == "pkg/test_two.py::TestT::test_slow"


def test_a_failing_test_fails_its_shard_only(suite):
    codes = sorted(run(suite, f"{i}/2")[0].returncode for i in (1, 2))
    assert codes == [0, 1]


def test_more_shards_than_tests_is_an_error_that_says_what_to_write(suite):
    done, _ = run(suite, "1/9", "-k", "fast or slow")
    assert done.returncode == 4
    assert "9 shards for 2 tests: write 'shards: 2' or fewer" in done.stdout + done.stderr


def test_a_bad_shard_is_an_error(suite):
    done, _ = run(suite, "3/2")
    assert done.returncode == 4
    assert "write INDEX/COUNT" in done.stdout + done.stderr


def test_known_times_are_pinned_for_a_run_and_merged_after_it(tmp_path):
    store, folder = tmp_path / "store.json", tmp_path / "run"
    store.write_text('{"a": 4, "b": 1}')
    pin(store, folder)
    assert read_times(str(folder)) == {"a": 4, "b": 1}
    store.write_text("{}")
    pin(store, folder)
    assert read_times(str(folder)) == {"a": 4, "b": 1}, "a re-run sees the times of its run"
    store.write_text('{"a": 4, "b": 1}')
    (folder / "shard-1of1.json").write_text('{"seconds": {"a": 2, "c": 3}, "digest": "x"}')
    assert keep(folder, store) == 2
    assert json.loads(store.read_text()) == {"a": 3, "b": 1, "c": 3}


def test_shards_that_collected_different_tests_are_noticed(tmp_path):
    for i, digest in ((1, "x"), (2, "y")):
        (tmp_path / f"shard-{i}of2.json").write_text(json.dumps({"shard": i, "collected": 9 + i, "digest": digest}))
    assert disagreement(tmp_path) == (
        "the shards collected different tests, so some may have been run by none: "
        "shard 1 collected 10, shard 2 collected 11"
    )


@pytest.mark.parametrize("text", ["", "[]", "not json", '{"a": "x"}'])
def test_unreadable_times_are_as_none(tmp_path, text):
    (tmp_path / "times.json").write_text(text)
    assert read_times(str(tmp_path)) == {}

"""Cards for ordinary tests."""

import json

TESTS = """\
import json, os, subprocess, sys, time
import pytest

def hold(seconds):
    before = time.time()
    time.sleep(seconds)
    with open("notes", "a") as f:
        f.write(json.dumps([before, time.time(), os.environ["CUDA_VISIBLE_DEVICES"].split(",")]) + "\\n")

@pytest.mark.cards(2)
@pytest.mark.parametrize("n", range(4))
def test_two(n):
    assert len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == 2
    hold(0.1)

@pytest.mark.parametrize("n", range(6))
def test_one(cards, n):
    (card,) = cards(1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == card.visible
    hold(0.05)

def test_none():
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
"""


def overlaps(notes):
    return [
        (a, b) for i, a in enumerate(notes) for b in notes[:i] if set(a[2]) & set(b[2]) and a[0] < b[1] and b[0] < a[1]
    ]


def test_no_two_tests_have_a_card_at_the_same_time(project):
    project.write("test_a.py", TESTS)
    assert project.pytest("-n", "4", "--matrix-cards", "3") == 0, project.out
    notes = [json.loads(line) for line in (project.root / "notes").read_text().splitlines()]
    assert len(notes) == 10
    assert not overlaps(notes)
    assert project.properties("test_two[0]")["cards"].count("PRETENDED") == 2


def test_a_host_with_too_few_cards_skips_and_says_what_to_write(project):
    project.write("test_a.py", "import pytest\n@pytest.mark.cards(2)\ndef test_a(): pass\n")
    assert project.pytest("-rs") == 0
    assert "needs 2 cards, this host has 0 (to pretend some: --matrix-cards 2)" in project.out


def test_what_a_test_leaves_running_is_ended_before_its_card_goes_back(project):
    project.write(
        "test_a.py",
        "import subprocess, pytest, os\n"
        "@pytest.mark.cards(1)\n"
        "def test_a():\n    p = subprocess.Popen(['setsid', 'sleep', '600'])\n    open('pid', 'w').write(str(p.pid))\n"
        "def test_b():\n    state = open(f'/proc/{open(\"pid\").read()}/stat').read().split(')')[1].split()[0]\n"
        "    assert state == 'Z'\n",
    )
    assert project.pytest("--matrix-cards", "1") == 0, project.out


def test_a_marker_without_a_number_is_an_error_at_its_line(project):
    project.write("test_a.py", "import pytest\n@pytest.mark.cards\ndef test_a(): pass\n")
    assert project.pytest() == 1
    assert "test_a.py:2: write @pytest.mark.cards(2)" in project.out


def test_inside_a_job_its_own_cards_are_shared_out(project):
    project.write("tests/test_a.py", TESTS)
    project.write(
        "matrix.yaml",
        "suites:\n  s:\n    jobs:\n      unit: {pytest: {targets: tests/test_a.py, args: [-p, matrix.pytest_plugin, -k, not none], workers: 2}, cards: 2}\n",
    )
    assert project.matrix("run", "--cards", "2") == 0, project.out
    notes = [json.loads(line) for line in (project.root / "notes").read_text().splitlines()]
    assert {c for n in notes for c in n[2]} == {"0", "1"}
    assert not overlaps(notes)

import json
from pathlib import Path

import pytest

from matrix.host import health
from matrix.host.health import Health, Holder, evidence, look

GIB = 1 << 30
DATA = Path(__file__).parents[2] / "data/gpu"


def nobody(pid):
    return False


def test_an_idle_card_of_a_real_host_is_clean():
    card = json.loads((DATA / "nvml-h200.json").read_text())["cards"][0]
    said = Health(card["uuid"], used=card["memory"]["used"], uncorrected=card["ecc_uncorrected_volatile"])
    assert evidence(said, nobody, shared=False) == []


@pytest.mark.parametrize(
    ("card", "words"),
    [
        (Health("g", used=136 * GIB, holders=(Holder(486, 135 * GIB, "python hold.py"),)), "process 486 (python hold.py) holds 135.0 GiB"),
        (Health("g", uncorrected=3), "3 memory errors"),
        (Health("g", remap_failed=True), "remapped"),
        (Health("g", problem="did not answer within 20 s"), "did not answer"),
        (Health("g", used=40 * GIB), "40.0 GiB in use by nobody"),
    ],
)  # fmt: skip
def test_a_dirty_card_says_why(card, words):
    assert words in "; ".join(evidence(card, nobody, shared=False))


def test_memory_of_our_own_jobs_on_a_shared_card_is_expected():
    card = Health("g", used=30 * GIB, holders=(Holder(7, 20 * GIB, "python a.py"),))
    assert evidence(card, lambda pid: pid == 7, shared=True) == []


def test_a_driver_that_hangs_is_given_up_in_time(monkeypatch):
    monkeypatch.setattr(health, "_LIMIT", 0.5)
    monkeypatch.setattr(health.sys, "executable", "/bin/sh")
    monkeypatch.setattr(health.subprocess, "Popen", lambda command, **kw: REAL(["sleep", "60"], **kw))
    assert look(["GPU-1"], False)[0].problem == "did not answer within 0 s"


REAL = health.subprocess.Popen


def test_a_driver_that_is_not_there_is_a_problem_not_a_crash():
    (card,) = look(["GPU-1"], True)
    assert card.problem

"""Whatever a log holds: no crash, no line out of range, and a log cut off before its failure names none."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrix.triage.analysis import analyse, scanner_for
from matrix.triage.causes import report
from matrix.triage.ruleset import load_rules

TRACEBACK = 'Traceback (most recent call last):\n  File "/w/t.py", line 3, in f\n    g()\nRuntimeError: mat1 and mat2 shapes cannot be multiplied (2x48 and 64x64)'
PYTEST = (
    "============================= test session starts ==============================\ncollected 2 items\n\ntests/test_a.py .F\n\n"
    "=================================== FAILURES ===================================\n___________________________________ test_b ____________________________________\n\n"
    ">       assert 1 == 2\nE       assert 1 == 2\n\ntests/test_a.py:3: AssertionError\n"
    "=========================== short test summary info ============================\nFAILED tests/test_a.py::test_b - assert 1 == 2\n"
    "========================= 1 failed, 1 passed in 0.05s =========================="
)
FRAGMENTS = [
    TRACEBACK,
    PYTEST,
    "During handling of the above exception, another exception occurred:\n",
    "##[group]Run make\n\x1b[36;1mmake\x1b[0m\n##[endgroup]",
    "##[error]Process completed with exit code 1.",
    "Post job cleanup.\nCleaning up orphan processes",
    "section_start:17:step_script\r\x1b[0K\x1b[36;1mRunning\x1b[0m",
    "section_end:17:step_script\r\x1b[0K\nERROR: Job failed: exit code 1",
    "[Pipeline] { (Test)\n[Pipeline] sh\n+ make",
    "Finished: FAILURE",
    "a.c:1:2: error: expected ';'\nmake: *** [Makefile:2: a.o] Error 1",
    "run.sh: line 3: 19840 Killed                  python tok.py",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\ntrain.py FAILED\n-----\n  rank      : 1 (local_rank: 1)\n  exitcode  : -11 (pid: 3)\n=====",
    "  + Exception Group Traceback (most recent call last):\n  | ExceptionGroup: many (1 sub-exception)\n  +-+---------------- 1 ----------------\n    | ValueError: x\n    +------------------------------------",
    'Fatal Python error: Segmentation fault\n\nCurrent thread 0x0000 (most recent call first):\n  File "a.py", line 1 in f',
    "10%|#   |\r20%|##  |\r100%|####|",
    "iteration 3/ 100 | lm loss: 2.3E+00 | errors: 0",
    "thread 'tests::adds' panicked at src/lib.rs:1:45:\nassertion `left == right` failed\ntest tests::adds ... FAILED",
    "FAIL ./a.test.js\n  \u25cf adds\n    expect(received).toBe(expected)",
    "\x00\x00\x1b[31mE   \x1b[0m KeyError: 'x'",
    "",
]
_CHECKOUT = "".join(
    f"2026-12-01T01:02:03.{n:07d}Z {line}\n"
    for n, line in enumerate(
        [
            "Current runner version: '2.330.0'",
            "##[group]Run actions/checkout@v4",
            "##[endgroup]",
            "WARNING: could not import apex (ModuleNotFoundError: No module named 'apex'); fused kernels are off",
        ]
    )
)
BROKEN = {
    "traceback on GitHub": (
        _CHECKOUT
        + "".join(
            f"2026-12-01T01:02:04.0000000Z {line}\n"
            for line in [
                "##[group]Run python t.py",
                "##[endgroup]",
                "step 1",
                "step 2",
                *TRACEBACK.split("\n"),
                "##[error]Process completed with exit code 1.",
            ]
        ),
        "Traceback",
    ),
    "pytest, plain": ("+ pytest -q\n" + PYTEST, "=================================== FAILURES"),
    "killed, plain": (
        "+ python t.py\nstep 1 loss 0.5 errors: 0\nstep 2 loss 0.4 errors: 0\nrun.sh: line 3: 1984 Killed                  python t.py\n",
        "run.sh: line 3",
    ),
}

RULES = load_rules()


class Once:
    """A stream of given bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size: int) -> bytes:
        piece, self.data = self.data[:size], self.data[size:]
        return piece


def triage(data: bytes, exit_code: int | None = None):
    return report("x.log", analyse(scanner_for(RULES).scan(Once(data)), RULES, exit_code), RULES)


def check(data: bytes, exit_code: int | None) -> None:
    found = triage(data, exit_code)
    lines = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    assert found.lines == lines
    for cause in found.causes:
        assert 1 <= cause.line <= max(lines, 1)
        assert cause.end_line is None or cause.line <= cause.end_line <= max(lines, 1)
        assert all(1 <= c.line <= lines for c in cause.consequences)
    assert (found.status == "failed") == bool(found.causes)


def splice(rng: random.Random) -> bytes:
    """A log of fragments, shuffled, prefixed, cut, with bytes put in."""
    lines: list[bytes] = []
    for _ in range(rng.randint(0, 12)):
        part = rng.choice(FRAGMENTS).encode().split(b"\n")
        prefix = rng.choice(
            [
                b"",
                b"",
                b"[rank%d]: " % rng.randint(0, 9),
                b"2026-12-01T01:02:03.1234567Z ",
                b"[2026-12-01T01:02:03.123Z] ",
            ]
        )
        lines += [prefix + line for line in part]
    if rng.random() < 0.4:
        rng.shuffle(lines)
    data = bytearray(b"\n".join(lines))
    for _ in range(rng.randint(0, 6)):
        if data:
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 5)] = rng.randbytes(rng.randint(0, 5))
    return bytes(data[: rng.randint(0, len(data))] if rng.random() < 0.3 else data)


@pytest.mark.parametrize("seed", range(4))
def test_spliced_logs_never_crash_or_point_outside(seed):
    rng = random.Random(seed)
    for _ in range(60):
        check(splice(rng), rng.choice([None, None, 1, 137]))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_twenty_thousand_spliced_logs_never_crash_or_point_outside():
    rng = random.Random(20_000)
    for _ in range(20_000):
        check(splice(rng), rng.choice([None, None, 1, 137]))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=2000), st.sampled_from([None, 1]))
def test_random_bytes_never_crash_or_point_outside(data, exit_code):
    check(data, exit_code)


@pytest.mark.parametrize("name", BROKEN)
def test_a_log_cut_off_before_its_failure_names_no_category(name):
    text, failure = BROKEN[name]
    start = text.index(failure)
    for cut in range(0, start, max(1, start // 25)):
        found = triage(text[:cut].encode())
        assert all(c.category == "unknown" or c.confidence < 0.5 for c in found.causes), (cut, found.causes)


def test_one_line_of_many_megabytes_is_one_line():
    found = triage(b"x" * (40 << 20) + b"\nKeyError: 'a'\n", 1)
    assert found.lines == 2
    assert found.causes[0].line == 2

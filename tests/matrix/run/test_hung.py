"""Where a job hung is part of what is said of it."""

import pytest

from matrix.run.hung import frames, where

STAMP = "2026-12-01T07:04:22.565284Z "
PY_SPY = """\
[matrix] Python stacks of process 21 (python train.py):
[matrix] Process 21: python train.py
[matrix] Python v3.11.7 (/usr/bin/python3.11)
[matrix]
[matrix] Thread 21 (idle): "MainThread"
[matrix]     wait (threading.py:320)
[matrix]     get (multiprocessing/queues.py:102)
[matrix]     consume (prefetch.py:16)
[matrix]     <module> (train.py:3)
[matrix] Python stacks of process 22 (python -c x):
[matrix] Thread 22 (active)
[matrix]     <module> (<string>:1)
[matrix] process 23 (sleep 9): no Python process, state S
""".splitlines()
FAULTHANDLER = """\
[matrix] Python stacks of process 7 (python a.py):
[matrix] Current thread 0x00007f (most recent call first):
[matrix]   File "/usr/lib/python3.11/threading.py", line 327 in wait
[matrix]   File "/work dir/a.py", line 4 in main
""".splitlines()


def test_the_innermost_frame_that_is_not_pythons_own_is_told_for_each_process():
    assert list(frames(PY_SPY)) == [("21", "consume (prefetch.py:16)"), ("22", "<module> (<string>:1)")]
    assert list(frames(FAULTHANDLER)) == [("7", "main (/work dir/a.py:4)")]
    assert list(frames(FAULTHANDLER[:-1])) == [("7", "wait (/usr/lib/python3.11/threading.py:327)")]


@pytest.mark.parametrize("lines", [[], ["[matrix] nothing of it"], ["job's own: wait (a.py:3)"]])
def test_without_stacks_nothing_is_said(lines):
    assert list(frames(lines)) == []


def test_it_is_read_from_the_log_below_the_remark(tmp_path):
    log = tmp_path / "1.log"
    said = [f"{STAMP}{line}" for line in ["step 1", "[matrix] reached its limit", *PY_SPY, "later (b.py:9)"]]
    log.write_text("\n".join(said))
    assert where(log, 2) == "; it was in consume (prefetch.py:16), <module> (<string>:1)"
    assert where(log, None) == where(tmp_path / "none", 1) == ""

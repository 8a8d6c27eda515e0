"""A line taken apart: what the runner, the launcher and the logger put before the message."""

import pytest

from matrix.triage.lines import begins_with_time, clean, split


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("2026-12-01T01:26:47.8542350Z KeyError: 'a'", "KeyError: 'a'"),
        ("build\tRun tests\t2026-12-01T01:26:47.8542350Z KeyError: 'a'", "KeyError: 'a'"),
        ("[2026-12-01T01:27:01.548Z] + make", "+ make"),
        ("2026-05-05T10:10:10.123456Z 01O KeyError: 'a'", "KeyError: 'a'"),
        ("Dec 03 19:09:15 RuntimeError: x", "RuntimeError: x"),
        ('[11:49:32]\t  File "a.py", line 1', '  File "a.py", line 1'),
        ("12:34:56  make", "make"),
        ("[rank3]: IndexError: list index out of range", "IndexError: list index out of range"),
        ('2026-12-01T01:26:47.8542350Z [default0]:  File "a.py"', ' File "a.py"'),
        ("iteration 3: loss 2.0", "iteration 3: loss 2.0"),
    ],
)
def test_the_runner_s_time_and_the_rank_are_taken_off(raw, text):
    assert split(1, raw).text == text


@pytest.mark.parametrize(
    ("raw", "rank"),
    [
        ("[rank3]: x", 3),
        ("[default12]:x", 12),
        ("[1,5]<stderr>: x", 5),
        ("7: x", 7),
        ("(worker pid=123) x", None),
        ("x", None),
    ],
)
def test_the_rank_is_the_number_of_the_prefix(raw, rank):
    assert split(1, raw).rank == rank


@pytest.mark.parametrize(
    ("raw", "level", "body"),
    [
        ("2026-12-01 01:40:41,520 INFO post: 0 errors", "info", "INFO post: 0 errors"),
        ("E1201 01:29:49.244000 20774 site-packages/a.py:1002] failed", "error", "failed"),
        ("WARNING: could not import apex", "warning", "WARNING: could not import apex"),
        ("ValueError: bad", "", "ValueError: bad"),
    ],
)
def test_a_logger_s_level_is_known(raw, level, body):
    line = split(1, raw)
    assert (line.level, line.body) == (level, body)


def test_a_signal_that_glog_dumps_is_fatal_at_whatever_level_it_is_written():
    head = "W0819 16:59:47.757876 32004 init.cc:234] "
    assert split(1, head + "*** SIGABRT (@0x3e8) received by PID 22951").level == "fatal"
    assert split(1, head + "You could check whether a process was killed").level == "warning"


def test_of_a_line_that_was_redrawn_the_last_drawing_counts():
    assert clean(1, b"10%|# |\r50%|###|\r100%|#####|\r").text == "100%|#####|"


def test_bytes_that_are_no_text_and_nuls_do_no_harm():
    assert clean(1, b"a\x00b\xff").text == "ab\ufffd"


def test_a_time_on_nearly_every_line_is_the_runner_s():
    assert begins_with_time(
        [b"2026-12-01 01:40:41,520 INFO a", b"2026-12-01 01:40:42,520 b", b"2026-12-01 01:40:43,520 c"]
    )
    assert not begins_with_time([b"2026-12-01 01:40:41,520 INFO a", b"b", b"c"])

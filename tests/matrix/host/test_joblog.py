"""The log of an attempt: without its stamps it is what the job wrote."""

import re

from hypothesis import given
from hypothesis import strategies as st

from matrix.host.joblog import REMARK, JobLog, stamp

STAMP = re.compile(rb"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z ")


@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"\n", b"a\n", b"\n\n", b"\r", b"x\r\ny"])))
def test_stamps_come_off_again(tmp_path_factory, chunks):
    path = tmp_path_factory.mktemp("log") / "deep" / "1.log"
    log = JobLog(str(path))
    for chunk in chunks:
        log.write(chunk)
    whole = b"".join(chunks)
    raw = path.read_bytes()
    lines = raw.split(b"\n")
    assert all(STAMP.match(line) for line in lines[:-1])
    assert b"\n".join(STAMP.sub(b"", line) for line in lines) == whole
    assert log.lines == whole.count(b"\n")


def test_a_remark_stands_on_a_line_of_its_own_and_tells_its_number(tmp_path):
    log = JobLog(str(tmp_path / "1.log"))
    log.write(b"one\ntwo without end")
    assert log.remark("first\nsecond") == 3
    log.write(b"three\n")
    lines = [line.split("Z ", 1)[1] for line in (tmp_path / "1.log").read_text().splitlines()]
    assert lines == ["one", "two without end", f"{REMARK}first", f"{REMARK}second", "three"]


def test_a_full_disk_is_remembered_and_no_error():
    log = JobLog("/dev/full")
    log.write(b"x\n")
    assert log.problem == "No space left on device"


def test_stamps_are_utc_with_microseconds():
    assert stamp(1.5) == b"1970-01-01T00:00:01.500000Z "

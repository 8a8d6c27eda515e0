"""Logs that print their losses are compared like records."""

import numpy as np
import pytest
from click.testing import CliRunner

from dsv4.align.bits import decimal20, loss_md5
from dsv4.align.load import load
from dsv4.align.logs import LogOrder
from dsv4.align.record import HEADER, Row
from dsv4.commands.align import command
from dsv4.errors import UsageError

VALUES = np.random.default_rng(0).uniform(1, 6, (3, 2, 2)).astype(np.float32).astype(np.float64)
ROWS = [Row(s + 1, m, float(VALUES[s, m, 0]), float(VALUES[s, m, 1])) for s in range(3) for m in range(2)]


def printed(value, rank=0):
    return f"final_loss: rank={rank} val={decimal20(value)} md5={loss_md5(value)}"


def write(path, *names, glue="\n", rank=0):
    lines = [printed(row.loss(name), rank) for row in ROWS for name in names]
    path.write_text(
        "[2026-06-08] INFO start\nper_token_loss: rank=0 shape=[2, 4] md5=0\n" + glue.join(lines) + "\ndone\n"
    )
    return path


def test_records_are_numbered_by_step_micro_batch_and_name(tmp_path):
    assert load(write(tmp_path / "a.log", "main", "mtp"), LogOrder()).rows == tuple(ROWS)
    megatron = write(tmp_path / "b.log", "mtp", "main")
    assert load(megatron, LogOrder(("mtp", "main"))).rows == tuple(ROWS)
    one = load(write(tmp_path / "c.log", "main"), LogOrder(("main",), accumulate=3)).rows
    assert [row.key for row in one] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert one[0].mtp is None


def test_glued_lines_colours_and_other_ranks_are_read_past(tmp_path):
    path = write(tmp_path / "a.log", "main", "mtp", glue=" \x1b[32m" + printed(9.0, rank=3) + "\x1b[0m ")
    assert load(path, LogOrder()).rows == tuple(ROWS)


def test_a_record_and_a_log_are_compared(tmp_path):
    log = write(tmp_path / "megatron.log", "mtp", "main")
    record = tmp_path / "run.csv"
    record.write_text("\n".join([HEADER, *(row.line() for row in ROWS)]) + "\n")
    done = CliRunner().invoke(command, [str(record), str(log), "--reference-order", "mtp,main"], standalone_mode=False)
    assert done.return_value == 0
    assert done.output.startswith("main_matches=6/6\nmtp_matches=6/6\n")
    assert CliRunner().invoke(command, [str(record), str(log)], standalone_mode=False).return_value == 1


def test_an_altered_md5_is_refused_with_its_line(tmp_path):
    path = write(tmp_path / "a.log", "main", "mtp")
    lines = path.read_text().splitlines()
    lines[4] = lines[4][:-1] + ("0" if lines[4][-1] != "0" else "1")
    path.write_text("\n".join(lines))
    with pytest.raises(UsageError, match=r"a\.log:5: md5 .* is not that of"):
        load(path, LogOrder())


def test_a_log_that_ends_within_a_micro_batch_is_refused(tmp_path):
    path = write(tmp_path / "a.log", "main")
    path.write_text(path.read_text() + printed(2.0))
    with pytest.raises(UsageError, match=r"a\.log:10: 7 losses are no whole number of micro-batches of 2"):
        load(path, LogOrder())


def test_another_rank_and_another_order_are_asked_for(tmp_path):
    path = write(tmp_path / "a.log", "main", "mtp", rank=2)
    with pytest.raises(UsageError, match="rank=0"):
        load(path, LogOrder())
    assert load(path, LogOrder(rank=2)).rows == tuple(ROWS)
    done = CliRunner().invoke(command, [str(path), str(path), "--order", "main,aux"], standalone_mode=False)
    assert isinstance(done.exception, UsageError)

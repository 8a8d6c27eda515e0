"""Exchanges between real processes."""

import io
import sys
from pathlib import Path

import pytest

from dsv4.parallel.launch import launch

SCRIPT = Path(__file__).with_name("exchange.py")


@pytest.mark.parametrize("ranks", [3, 4])
def test_rows_and_gradients_arrive_and_sums_keep_their_order(tmp_path, ranks):
    """Uneven and empty parts, in pairs and by all-gather, over overlapping groups, for a size that is no power of two."""
    outcome = launch([sys.executable, "-u", "-W", "ignore", str(SCRIPT)], ranks, tmp_path / "logs", io.StringIO())
    logs = "".join(p.read_text() for p in sorted((tmp_path / "logs").glob("workerlog.*")))
    assert outcome.code == 0, logs
    assert logs.count("exchanged") == ranks

"""Read either side of a comparison: a record, or a log that prints its losses."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dsv4.align.logs import LogOrder, has_losses, rows_of_log
from dsv4.align.record import Record, read_record
from dsv4.errors import UsageError


def load(path: Path, order: LogOrder) -> Record:
    """Read a CSV record, or a log with `final_loss: rank=… val=… md5=…`. Raises UsageError with file and line."""
    try:
        raw = path.read_bytes()
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}", "name a record that `dsv4 train --record` wrote, or a log") from None
    text = raw.decode("utf-8", errors="replace")
    if text.startswith("step,") or not has_losses(text):
        return read_record(path)
    rows = rows_of_log(str(path), text, order)
    return Record(str(path), hashlib.sha256(raw).hexdigest(), rows, f"log of rank {order.rank}")

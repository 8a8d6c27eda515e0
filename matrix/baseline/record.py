"""Reads the files that hold losses: baselines, and records that jobs write (CSV, JSON lines, trainer_state.json)."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from pathlib import Path

from matrix.baseline.parse import Loss, lines_of, number, read_log

_MAX_JSON = 64 << 20  # bytes
_BASELINE_LINE = re.compile(
    r"(?P<step>\d{1,15})(?::(?P<micro>\d{1,9}))?\s+(?P<loss>\S+)(?:\s+(?P<name>[a-z_]{1,20}))?", re.ASCII
)


class FormError(ValueError):
    """A file of losses that does not have the form it must have. The message says where."""


def read_csv(lines: Iterable[str]) -> list[Loss]:
    """Return the losses of a CSV: columns `step`, perhaps `micro`, and `loss` or the two that `dsv4 train` records.

    Raises:
        FormError: a row does not have the header's columns or holds no number where it must.

    """
    rows = csv.reader(lines)
    header = [h.strip().lower() for h in next(rows, [])]
    losses = {i: name for i, h in enumerate(header) if (name := _csv_name(h))}
    if "step" not in header or not losses:
        raise FormError("line 1: a CSV of losses has the columns `step` and `loss`, or `main_loss` and `mtp_loss`")
    step_at, micro_at = header.index("step"), header.index("micro") if "micro" in header else None
    found = []
    for row in rows:
        if not any(row):
            continue
        if len(row) != len(header) or not row[step_at].strip().isdecimal():
            raise FormError(
                f"line {rows.line_num}: {len(row)} columns where the header has {len(header)}, or no step number"
            )
        micro = row[micro_at].strip() if micro_at is not None else ""
        for i, name in losses.items():
            value = number(row[i])
            if value is None:
                raise FormError(f"line {rows.line_num}: {row[i][:40]!r} is no loss")
            found.append(
                Loss(
                    int(row[step_at]),
                    value,
                    row[i].strip(),
                    rows.line_num,
                    int(micro) if micro.isdecimal() else None,
                    name,
                )
            )
    return found


def _csv_name(column: str) -> str | None:
    if column in ("loss", "main_loss", "train_loss", "lm_loss"):
        return "loss"
    return "mtp" if column == "mtp_loss" else None


def read_baseline(lines: Iterable[str]) -> list[Loss]:
    """Return the losses of a baseline file: `<step> <loss>` a line, `#` begins a comment.

    A record with micro-batches is kept as `<step>:<micro> <loss>`, a second loss with its name behind it.

    Raises:
        FormError: a line is none of these, or a step stands there twice.

    """
    found: dict[tuple[int, int, str], Loss] = {}
    for n, raw in enumerate(lines, 1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        m = _BASELINE_LINE.fullmatch(line)
        value = number(m["loss"]) if m else None
        if m is None or value is None:
            raise FormError(f"line {n}: {line[:60]!r} is not `<step> <loss>`")
        loss = Loss(int(m["step"]), value, m["loss"], n, int(m["micro"]) if m["micro"] else None, m["name"] or "loss")
        if loss.key in found:
            raise FormError(f"line {n}: {loss.where} stands there twice")
        found[loss.key] = loss
    return list(found.values())


def read_file(path: Path) -> list[Loss]:
    """Return the losses of a file that a job wrote: a CSV record, JSON lines, trainer_state.json or a log.

    Raises:
        FormError: the file begins as one of these and does not go on as one.
        OSError: it cannot be read.

    """
    first = next((line for line in lines_of(path) if line.strip()), "")
    if "," in first and re.match(r"\s*\w+\s*(,\s*[\w/]+\s*)+$", first):
        return read_csv(lines_of(path))
    if path.suffix == ".json" and path.stat().st_size <= _MAX_JSON:
        try:
            parsed = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as e:
            raise FormError(f"does not parse as JSON: {e}") from None
        history = parsed.get("log_history", parsed) if isinstance(parsed, dict) else parsed
        rows = [r for r in history if isinstance(r, dict)] if isinstance(history, list) else []
        return read_log(json.dumps(r) for r in rows)
    return read_log(lines_of(path))

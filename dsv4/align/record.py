"""The loss record: one row a micro-batch, with decimals, bits and md5 that must agree."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dsv4.align.bits import decimal20, f32_hex, f32_of_hex, f64_hex, f64_of_hex, loss_md5, to_float32
from dsv4.errors import UsageError

LOSSES = ("main", "mtp")
COLUMNS = ("step", "micro", "main_loss", "main_f32_hex", "main_md5", "mtp_loss", "mtp_f32_hex", "mtp_md5",
           "main_f64_hex", "mtp_f64_hex")  # fmt: skip
HEADER = ",".join(COLUMNS)
Key = tuple[int, int]  # step from 1, micro-batch from 0


@dataclass(frozen=True, slots=True)
class Row:
    """Losses of one micro-batch. `mtp` is None for a model without an MTP module."""

    step: int
    micro: int
    main: float
    mtp: float | None

    @property
    def key(self) -> Key:
        """Place of the row in the run."""
        return self.step, self.micro

    def loss(self, name: str) -> float | None:
        """Value of the loss `main` or `mtp`."""
        return self.main if name == "main" else self.mtp

    def line(self) -> str:
        """Write the row as the contract's CSV, without a line end."""
        cells = [str(self.step), str(self.micro)]
        for value in (self.main, self.mtp):
            cells += ["", "", ""] if value is None else [decimal20(value), f32_hex(value), loss_md5(value)]
        cells += ["" if value is None else f64_hex(value) for value in (self.main, self.mtp)]
        return ",".join(cells)


@dataclass(frozen=True, slots=True)
class Record:
    """A whole record and what identifies it."""

    path: str
    sha256: str
    rows: tuple[Row, ...]
    origin: str | None  # from the meta file beside it

    def by_key(self) -> dict[Key, Row]:
        """Rows by step and micro-batch."""
        return {row.key: row for row in self.rows}


def read_record(path: Path) -> Record:
    """Read and check a record.

    Raises UsageError, with file and line, on a missing file, an unknown header, a cut row, a repeated micro-batch,
    or decimals, hex and md5 that do not belong together.
    """
    try:
        raw = path.read_bytes()
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}", "name a record that `dsv4 train --record` wrote") from None
    rows = tuple(_rows(path, raw.decode("utf-8", errors="replace")))
    if not rows:
        raise UsageError(f"{path}:1: the record has no rows", "name the record of a run that finished a step")
    return Record(str(path), hashlib.sha256(raw).hexdigest(), rows, _origin(path))


def _rows(path: Path, text: str) -> Iterator[Row]:
    reader = csv.DictReader(text.splitlines())
    missing = [c for c in COLUMNS[:8] if c not in (reader.fieldnames or ())]
    if missing:
        raise UsageError(f"{path}:1: the header lacks {missing[0]}", f"a record begins with {HEADER}")
    seen: set[Key] = set()
    for cells in reader:
        where = f"{path}:{reader.line_num}"
        row = _row(where, cells)
        if row.key in seen:
            raise UsageError(f"{where}: step {row.step} micro {row.micro} stands twice", "keep one row a micro-batch")
        seen.add(row.key)
        yield row


def _row(where: str, cells: dict[str, str | None]) -> Row:
    if any(cells.get(c) is None for c in COLUMNS[:8]) or None in cells:
        raise UsageError(f"{where}: the row is cut or has extra cells", "resume the run, or drop the row")
    try:
        step, micro = int(cells["step"] or ""), int(cells["micro"] or "")
    except ValueError:
        raise UsageError(f"{where}: step and micro are not whole numbers") from None
    main = _loss(where, cells, "main")
    if main is None:
        raise UsageError(f"{where}: the main loss is empty")
    return Row(step, micro, main, _loss(where, cells, "mtp"))


def _loss(where: str, cells: dict[str, str | None], name: str) -> float | None:
    """Read one loss, at float64 if that was recorded, and check its four forms against each other."""
    text, bits, md5 = (cells[f"{name}_{part}"] or "" for part in ("loss", "f32_hex", "md5"))
    wide = cells.get(f"{name}_f64_hex") or ""
    if not (text or bits or md5 or wide):
        return None
    try:
        decimal, narrow = float(text), f32_of_hex(bits)
        value = f64_of_hex(wide) if wide else decimal
    except ValueError:
        raise UsageError(f"{where}: {name}: a decimal, eight hex digits and an md5 are needed") from None
    faults = {
        f"{name}_loss {text} is not {name}_f32_hex {bits}": f32_hex(decimal) != bits.lower(),
        f"{name}_md5 {md5} is not that of {name}_f32_hex {bits}": loss_md5(narrow) != md5.lower(),
        f"{name}_f64_hex {wide} is not {name}_f32_hex {bits}": f32_hex(value) != bits.lower(),
    }
    if not math.isnan(narrow) and any(faults.values()):
        fault = next(text for text, wrong in faults.items() if wrong)
        raise UsageError(f"{where}: {fault}", "the record was altered, or its writer is wrong: take the original")
    return value


def meta_path(record: Path) -> Path:
    """Where the identity of the run stands that wrote a record."""
    return record.with_name(record.name + ".meta.json")


def _origin(path: Path) -> str | None:
    try:
        meta = json.loads(meta_path(path).read_text())
    except (OSError, ValueError):
        return None
    origin = meta.get("origin") if isinstance(meta, dict) else None
    return str(origin) if origin else None


def final_float32(row: Row, name: str) -> float | None:
    """Loss of a row as it is printed and fingerprinted: rounded to float32."""
    value = row.loss(name)
    return None if value is None else to_float32(value)

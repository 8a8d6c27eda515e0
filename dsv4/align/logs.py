"""Losses from training logs that print `final_loss: rank=0 val=… md5=…`, as PaddleFleet and its Megatron peer do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dsv4.align.bits import loss_md5
from dsv4.align.record import LOSSES, Row
from dsv4.errors import UsageError

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LOSS = re.compile(
    r"final_loss:\s*rank=(?P<rank>\d{1,6})\s+val=(?P<value>[-+]?(?:\d{1,40}(?:\.\d{1,60})?(?:[eE][-+]?\d{1,4})?|nan|inf))"
    r"\s+md5=(?P<md5>[0-9a-f]{32})"
)


@dataclass(frozen=True)
class LogOrder:
    """How a log's losses follow one another: names within a micro-batch, micro-batches within a step, whose rank."""

    names: tuple[str, ...] = LOSSES
    accumulate: int = 2
    rank: int = 0


def has_losses(text: str) -> bool:
    """Whether a text looks like such a log."""
    return _LOSS.search(_ANSI.sub("", text)) is not None


def rows_of_log(path: str, text: str, order: LogOrder) -> tuple[Row, ...]:
    """Give the losses of one rank their places: record i is step i // (A·L) + 1, micro-batch (i mod A·L) // L.

    Several may be glued to one line. Raises UsageError, with file and line, on an md5 that is not its value's, and
    on a log that ends within a micro-batch.
    """
    found: list[float] = []
    last_line = 1
    for number, raw in enumerate(text.split("\n"), 1):
        for match in _LOSS.finditer(_ANSI.sub("", raw)):
            if int(match["rank"]) != order.rank:
                continue
            value = float(match["value"])
            if loss_md5(value) != match["md5"] and value == value:  # noqa: PLR0124 - NaN has many md5s
                raise UsageError(
                    f"{path}:{number}: md5 {match['md5']} is not that of {match['value']}", "the log was altered or cut"
                )
            found.append(value)
            last_line = number
    if not found:
        raise UsageError(f"{path}: no `final_loss: rank={order.rank} val=… md5=…` in it", "choose another --rank")
    per_micro = len(order.names)
    if len(found) % per_micro:
        raise UsageError(
            f"{path}:{last_line}: {len(found)} losses are no whole number of micro-batches of {per_micro}",
            "cut the log to whole micro-batches, or name its losses with --order",
        )
    return tuple(_row(found[i : i + per_micro], i // per_micro, order) for i in range(0, len(found), per_micro))


def _row(values: Sequence[float], index: int, order: LogOrder) -> Row:
    by_name = dict(zip(order.names, values, strict=True))
    step, micro = divmod(index, order.accumulate)
    return Row(step + 1, micro, by_name["main"], by_name.get("mtp"))

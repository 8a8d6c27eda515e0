"""Recording of inner values, for comparison with a reference."""

from __future__ import annotations

import paddle

Trace = dict[str, paddle.Tensor]
"""Name → value, with the names of the reference's activation files."""


def record(trace: Trace | None, name: str, value: paddle.Tensor) -> None:
    """Keep a value if anybody asked for a trace."""
    if trace is not None:
        trace[name] = value

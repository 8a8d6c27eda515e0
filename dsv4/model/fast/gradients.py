"""What a hand-written gradient may return: Paddle wants None for an input that needs none (a frozen parameter)."""

from __future__ import annotations

from typing import Any

import paddle


def note_inputs(ctx: Any, *inputs: paddle.Tensor | None) -> None:
    """In forward: remember which inputs (those that are there) need a gradient."""
    ctx.wanted = [not t.stop_gradient for t in inputs if t is not None]


def wanted(ctx: Any, *gradients: paddle.Tensor | None) -> Any:
    """In backward: the gradients of the noted inputs, None where none is needed."""
    kept = tuple(g if needed else None for g, needed in zip(gradients, ctx.wanted, strict=True))
    return kept if len(kept) > 1 else kept[0]

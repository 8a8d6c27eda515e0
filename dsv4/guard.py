"""When a loss or a gradient is not finite: find the first tensor that is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import paddle

from dsv4.errors import DivergedError

_FLOATS = (paddle.float64, paddle.float32, paddle.bfloat16, paddle.float16)


def first_non_finite(tensors: Iterable[tuple[str, paddle.Tensor]]) -> str | None:
    """Name, index and value of the first element that is NaN or infinite; None if all are finite."""
    for name, tensor in tensors:
        if tensor.dtype not in _FLOATS:
            continue
        values = tensor.detach().cast("float64").numpy()
        if not np.isfinite(values).all():
            index = np.argwhere(~np.isfinite(values))[0]
            return f"{name}{[int(i) for i in index]} = {values[tuple(index)]}"
    return None


def stop(step: int, micro: int, what: str, places: Mapping[str, Iterable[tuple[str, paddle.Tensor]]]) -> DivergedError:
    """Build the error that ends the run, with the first non-finite tensor of the first place that has one.

    `places` are searched in order, such as weights, activations, gradients; masks of minus infinity are no fault.
    """
    for place, tensors in places.items():
        found = first_non_finite(tensors)
        if found:
            return DivergedError(
                f"step {step} micro {micro}: {what} is not finite; first non-finite tensor: {place} {found}",
                "resume from the checkpoint before it with a lower learning rate, or bisect against a healthy run",
            )
    return DivergedError(f"step {step} micro {micro}: {what} is not finite, every recorded tensor is")

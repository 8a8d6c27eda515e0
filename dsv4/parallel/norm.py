"""The gradient norm of a model that is spread over ranks, and its four parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import paddle

from dsv4.parallel.transport import Transport


@dataclass(frozen=True)
class NormParts:
    """Sums of squares over the whole model: owned by one rank each or held by several, experts or not."""

    shared_dense: float
    shared_expert: float
    owned_dense: float
    owned_expert: float

    @property
    def norm(self) -> float:
        """Gradient norm of the whole model."""
        return math.sqrt(self.shared_dense + self.shared_expert + self.owned_dense + self.owned_expert)


@paddle.no_grad()
def gather_parts(
    gradients: Mapping[str, paddle.Tensor], counted: Iterable[str], *, sharded: bool, world: Transport
) -> NormParts:
    """Add up all ranks' parts in the order of ranks.

    `counted` are the parameters that this rank answers for: every parameter of the model is counted by one rank.
    """
    squares = np.zeros(4)
    for name in counted:
        if name in gradients:
            squares[2 * sharded + is_expert(name)] += float(gradients[name].square().sum())
    total = np.zeros(4)
    for part in world.all_gather(paddle.to_tensor(squares, dtype="float64")):
        total += part.numpy()
    return NormParts(*(float(t) for t in total))


def is_expert(name: str) -> bool:
    """Whether a parameter belongs to a routed expert, which only some ranks hold."""
    return ".local_experts." in name

"""Muon: momentum whose update is orthogonalised, matrix by matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import paddle

from dsv4.errors import UsageError
from dsv4.optim.newton_schulz import Triple, orthogonalize

# Scale of the orthogonal update by the shape [out, in]. Source: Emerging-Optimizers `get_muon_scale_factor`.
SCALE_MODES: dict[str, Callable[[int, int], float]] = {
    "spectral": lambda out, into: float(max(out, into)) ** 0.5,
    "shape_scaling": lambda out, into: max(1.0, out / into) ** 0.5,
    "unit_rms_norm": lambda out, into: (out / into) ** 0.5,
    "none": lambda _out, _into: 1.0,
}


@dataclass(frozen=True, slots=True)
class MuonSettings:
    """Constants of Muon, the same for every matrix."""

    momentum: float
    nesterov: bool
    steps: tuple[Triple, ...]
    scale_mode: str
    extra_scale: float

    def __post_init__(self) -> None:
        if self.scale_mode not in SCALE_MODES:
            raise UsageError(f"muon_scale_mode: no mode {self.scale_mode!r}", f"write one of {', '.join(SCALE_MODES)}")

    def scale(self, out: int, into: int) -> float:
        """Factor between the orthogonal matrix [out, into] and a step of learning rate 1."""
        return SCALE_MODES[self.scale_mode](out, into) * self.extra_scale


def matrices(x: paddle.Tensor, split: int) -> paddle.Tensor:
    """View a parameter [out, in], or a stack [E, out, in], as single matrices [N, out/split, in]."""
    rows, columns = x.shape[-2:]
    return x.reshape([-1, rows // split, columns])


def muon_direction(update: paddle.Tensor, split: int, settings: MuonSettings) -> paddle.Tensor:
    """Orthogonalised and scaled update in the shape of the parameter, for a learning rate of 1."""
    parts = matrices(update, split)
    scale = settings.scale(parts.shape[-2], parts.shape[-1])
    return (orthogonalize(parts, settings.steps) * scale).reshape(update.shape)


@paddle.no_grad()
def muon_step(
    p: paddle.Tensor,
    grad: paddle.Tensor,
    momentum: paddle.Tensor,
    *,
    lr: float,
    weight_decay: float,
    settings: MuonSettings,
    split: int = 1,
) -> None:
    """One update of a parameter in place (section 10.3): decay, momentum average, orthogonalise, step.

    `momentum` starts at zero, is an average (not a sum) and has no bias correction. With `split` n, the rows of
    each matrix are n independent matrices (heads, or gate and up halves).
    """
    if weight_decay:
        p.multiply_(paddle.full([], 1 - lr * weight_decay, p.dtype))
    momentum.add_((grad - momentum) * (1 - settings.momentum))
    update = grad + (momentum - grad) * settings.momentum if settings.nesterov else momentum
    p.subtract_(muon_direction(update, split, settings) * lr)

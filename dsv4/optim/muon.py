"""Muon: momentum whose update is orthogonalised, matrix by matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import paddle

from dsv4.errors import UsageError
from dsv4.optim.coefficients import Triple
from dsv4.optim.newton_schulz import orthogonalize

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


def orthogonal_updates(
    updates: Sequence[paddle.Tensor], splits: Sequence[int], settings: MuonSettings
) -> list[paddle.Tensor]:
    """Orthogonalised and scaled updates, each in the shape of its parameter, for a learning rate of 1.

    Matrices of equal shape are iterated as one batch, whichever parameter they belong to: the experts of all layers
    cost a few large products instead of hundreds of small ones.
    """
    parts = [matrices(u, split) for u, split in zip(updates, splits, strict=True)]
    batches: dict[tuple[int, int], list[int]] = {}
    for i, part in enumerate(parts):
        batches.setdefault((part.shape[-2], part.shape[-1]), []).append(i)
    done: list[paddle.Tensor] = list(updates)
    for (out, into), members in batches.items():
        x = paddle.concat([parts[i] for i in members]) if len(members) > 1 else parts[members[0]]
        x = orthogonalize(x, settings.steps) * settings.scale(out, into)
        pieces = x.split([parts[i].shape[0] for i in members]) if len(members) > 1 else [x]
        for i, piece in zip(members, pieces, strict=True):
            done[i] = piece.reshape(updates[i].shape)
    return done


@dataclass(frozen=True, slots=True)
class MuonEntry:
    """One parameter under Muon, with its gradient and momentum. With `split` n its row blocks are n matrices."""

    p: paddle.Tensor
    grad: paddle.Tensor
    momentum: paddle.Tensor
    weight_decay: float
    split: int = 1


@paddle.no_grad()
def muon_step(entries: Sequence[MuonEntry], lr: float, settings: MuonSettings) -> None:
    """Update parameters in place (section 10.3): decay, momentum average, orthogonalise, step.

    The momentum starts at zero, is an average (not a sum) and has no bias correction.
    """
    updates = []
    for e in entries:
        if e.weight_decay:
            e.p.multiply_(paddle.full([], 1 - lr * e.weight_decay, e.p.dtype))
        e.momentum.add_((e.grad - e.momentum) * (1 - settings.momentum))
        updates.append(e.grad + (e.momentum - e.grad) * settings.momentum if settings.nesterov else e.momentum.clone())
    for e, update in zip(entries, orthogonal_updates(updates, [e.split for e in entries], settings), strict=True):
        e.p.subtract_(update * lr)

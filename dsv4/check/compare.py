"""Errors between our tensors and a reference's, and what they are held against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Row:
    """One compared tensor. `error` is relative (max|a-b| ÷ max|b|) unless `kind` says otherwise."""

    source: str
    part: str
    tensor: str
    kind: str
    error: float
    bound: float

    @property
    def ok(self) -> bool:
        """Whether the error is within the bound; a NaN is not."""
        return self.error <= self.bound


def relative_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """max|a - b| ÷ max|b| over finite values of b; infinite unless infinities and NaNs stand in the same places."""
    ours, theirs = ours.astype(np.float64).ravel(), theirs.astype(np.float64).ravel()
    finite = np.isfinite(theirs)
    if ours.shape != theirs.shape or not np.array_equal(ours[~finite], theirs[~finite]):
        return float("inf")
    if not finite.any():
        return 0.0
    largest, apart = np.abs(theirs[finite]).max(), np.abs(ours[finite] - theirs[finite]).max()
    if largest == 0.0:
        return 0.0 if apart == 0.0 else float("inf")
    return float(apart / largest)


def gradient_error(ours: np.ndarray, theirs: np.ndarray, largest: float) -> float:
    """Relative error beyond the rounding of the model's `largest` gradient.

    (max|a - b| - 1e-12·largest) ÷ max|b|: some gradients are zero but for rounding.
    """
    apart = float(np.abs(ours.astype(np.float64) - theirs).max())
    if not np.isfinite(apart):
        return float("inf")
    beyond = max(apart - 1e-12 * largest, 0.0)
    scale = float(np.abs(theirs).max())
    return 0.0 if beyond == 0.0 else (beyond / scale if scale else float("inf"))


def sets_that_differ(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Share of rows (last axis) that hold other members, in any order."""
    ours, theirs = np.sort(ours.astype(np.int64), axis=-1), np.sort(theirs.astype(np.int64), axis=-1)
    if ours.shape != theirs.shape:
        return 1.0
    return float((ours != theirs).any(axis=-1).mean())

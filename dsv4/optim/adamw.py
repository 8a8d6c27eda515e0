"""AdamW with decoupled weight decay, in the dtype of its parameter."""

from __future__ import annotations

from dataclasses import dataclass

import paddle


@dataclass(frozen=True, slots=True)
class AdamSettings:
    """Constants of AdamW, the same for every parameter."""

    beta1: float
    beta2: float
    eps: float


@paddle.no_grad()
def adamw_step(
    p: paddle.Tensor,
    grad: paddle.Tensor,
    exp_avg: paddle.Tensor,
    exp_avg_sq: paddle.Tensor,
    *,
    t: int,
    lr: float,
    weight_decay: float,
    settings: AdamSettings,
) -> None:
    """One update in place; `t` counts from 1.

    The powers of beta are Python floats and epsilon stands outside the bias correction, as in torch's AdamW
    (section 10.4): p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps). Not `paddle.optimizer.AdamW`: its
    learning rate is held in float32 unless the default dtype says otherwise, which breaks float64 at 1e-8.
    """
    # In place, by scale_: the update is bound by memory, and a product with a 0-d tensor is nine times slower.
    if weight_decay:
        p.scale_(1 - lr * weight_decay)
    exp_avg.add_((grad - exp_avg).scale_(1 - settings.beta1))
    exp_avg_sq.scale_(settings.beta2).add_((grad * grad).scale_(1 - settings.beta2))
    correction1 = 1 - settings.beta1**t
    correction2 = (1 - settings.beta2**t) ** 0.5
    denominator = exp_avg_sq.sqrt().scale_(1 / correction2, settings.eps)
    p.subtract_((exp_avg / denominator).scale_(lr / correction1))

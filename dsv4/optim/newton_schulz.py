"""Newton-Schulz iterations: the polar factor of a matrix by matrix products alone."""

from __future__ import annotations

from collections.abc import Sequence

import paddle

from dsv4.optim.coefficients import Triple

NORM_FLOOR = 1e-7  # a zero gradient stays zero instead of becoming 0/0


def orthogonalize(x_NRC: paddle.Tensor, steps: Sequence[Triple]) -> paddle.Tensor:
    """Bring every singular value of each matrix [..., rows, columns] near one.

    Works on the shorter side: a tall matrix is transposed, iterated and transposed back. The iteration stays in
    the dtype of its input. Source: Emerging-Optimizers `newton_schulz`, section 10.3 of the specification.
    """
    tall = x_NRC.shape[-2] > x_NRC.shape[-1]
    x = x_NRC.mT if tall else x_NRC
    x = x / x.square().sum(axis=[-2, -1], keepdim=True).sqrt().clip(min=NORM_FLOOR)
    for a, b, c in steps:
        gram = paddle.matmul(x, x, transpose_y=True)
        x = a * x + paddle.matmul(b * gram + c * paddle.matmul(gram, gram), x)
    return x.mT if tall else x

"""Token dispatch: rows for experts, and back. Expert parallelism puts an exchange between ranks here."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import paddle

from dsv4.model.router import Routing


class Rows(NamedTuple):
    """What the experts of this rank compute on: rows [R, D] sorted by expert, weights [R, 1], rows per expert."""

    x_RD: paddle.Tensor
    weights_R1: paddle.Tensor
    counts: list[int]
    back: paddle.Tensor
    route: object = None  # what an exchange between ranks must remember until the rows go back


class Dispatcher(Protocol):
    """Brings tokens to the experts and sums their outputs."""

    def dispatch(self, x_TD: paddle.Tensor, routing: Routing) -> Rows:
        """Copy every token once for each of its experts, sorted by expert."""

    def combine(self, y_RD: paddle.Tensor, rows: Rows) -> paddle.Tensor:
        """Sum the k rows of each token: [R, D] → [T, D]. The routing weights are already in the rows."""


class LocalDispatcher:
    """All experts are here: sort by expert, stable, so that the order of sums never depends on chance."""

    def __init__(self, num_experts: int) -> None:
        self.num_experts = num_experts

    def dispatch(self, x_TD: paddle.Tensor, routing: Routing) -> Rows:
        """Rows of all experts; `back` [T, k] says in which row each token's j-th expert is."""
        T, k = routing.experts_Tk.shape
        flat = routing.experts_Tk.flatten()
        order = paddle.argsort(flat, stable=True)
        back = paddle.empty_like(order)
        back[order] = paddle.arange(T * k)
        counts = paddle.bincount(flat, minlength=self.num_experts).tolist()
        weights = paddle.gather(routing.weights_Tk.flatten(), order).unsqueeze(-1)
        return Rows(paddle.gather(x_TD, order // k), weights, counts, back.reshape([T, k]))

    def combine(self, y_RD: paddle.Tensor, rows: Rows) -> paddle.Tensor:
        """Sum in the order of the token's experts."""
        T, k = rows.back.shape
        y_TkD = paddle.gather(y_RD, rows.back.flatten()).reshape([T, k, -1])
        return paddle.matmul(paddle.ones([T, 1, k], dtype=y_RD.dtype), y_TkD).squeeze(1)

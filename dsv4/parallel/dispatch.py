"""Tokens to the ranks that hold their experts, and back (expert parallelism)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle.autograd import PyLayer

from dsv4.model.dispatch import Rows
from dsv4.model.router import Routing
from dsv4.parallel.transport import Table, Transport


class AllToAll(PyLayer):
    """Rows to other ranks; their gradients come back the same way."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, group: Transport, table: Table) -> paddle.Tensor:
        """Exchange rows by the table."""
        ctx.group, ctx.back = group, [list(column) for column in zip(*table, strict=True)]
        return group.all_to_all(x, table)

    @staticmethod
    def backward(ctx: Any, dy: paddle.Tensor) -> paddle.Tensor:
        """Exchange gradients by the transposed table."""
        return ctx.group.all_to_all(dy, ctx.back)


@dataclass(frozen=True)
class Route:
    """How the rows of one dispatch came: rows between ranks, and their order by expert and by source."""

    table: Table
    by_expert: paddle.Tensor | None  # None where no row came
    by_source: paddle.Tensor | None


class ExchangeDispatcher:
    """Experts are divided over a group, in order. Rows are sorted by expert, then by source: never by chance.

    One exchange takes rows and routing weights to the experts, one brings the outputs back; so do their gradients.
    """

    def __init__(self, num_experts: int, group: Transport) -> None:
        self.num_experts, self.group = num_experts, group
        self._per_rank = num_experts // group.size

    def dispatch(self, x_TD: paddle.Tensor, routing: Routing) -> Rows:
        """Rows of this rank's experts from all ranks."""
        T, k = routing.experts_Tk.shape
        flat = routing.experts_Tk.flatten()
        order = paddle.argsort(flat, stable=True)
        back = paddle.empty_like(order)
        back[order] = paddle.arange(T * k)
        weights = paddle.gather(routing.weights_Tk.flatten(), order).unsqueeze(-1)
        payload = paddle.concat([paddle.gather(x_TD, order // k), weights], axis=-1)

        counts = paddle.bincount(flat, minlength=self.num_experts)
        counts_nE = np.stack([c.numpy() for c in self.group.all_gather(counts)])
        n, per = self.group.size, self._per_rank
        table = counts_nE.reshape(n, n, per).sum(axis=2).tolist()
        received = AllToAll.apply(payload, self.group, table)
        here_ne = counts_nE[:, self.group.rank * per : (self.group.rank + 1) * per]
        route = _route(table, here_ne)
        if route.by_expert is None:
            # No row for any expert here. One of zeros keeps the graph, and the order of exchanges, as elsewhere.
            rows = paddle.concat([received, paddle.zeros([1, received.shape[1]], received.dtype)])
            local = [1, *[0] * (per - 1)]
        else:
            rows = paddle.gather(received, route.by_expert)
            local = here_ne.sum(axis=0).tolist()
        D = x_TD.shape[1]
        return Rows(rows[:, :D], rows[:, D:], local, back.reshape([T, k]), route)

    def combine(self, y_RD: paddle.Tensor, rows: Rows) -> paddle.Tensor:
        """Bring outputs back to their tokens, summed in the order of the token's experts."""
        route = rows.route
        assert isinstance(route, Route)
        y = y_RD[:0] if route.by_source is None else paddle.gather(y_RD, route.by_source)
        returned = AllToAll.apply(y, self.group, [list(column) for column in zip(*route.table, strict=True)])
        T, k = rows.back.shape
        return paddle.gather(returned, rows.back.flatten()).reshape([T, k, -1]).sum(axis=1)


def _route(table: Table, here_ne: np.ndarray[Any, Any]) -> Route:
    """Rows come ordered by source, within it by expert; find the order by expert, within it by source."""
    total = int(here_ne.sum())
    if total == 0:
        return Route(table, None, None)
    starts_ne = np.concatenate([[0], np.cumsum(here_ne.flatten())[:-1]]).reshape(here_ne.shape)
    by_expert = np.concatenate(
        [
            np.arange(starts_ne[source, e], starts_ne[source, e] + here_ne[source, e])
            for e in range(here_ne.shape[1])
            for source in range(here_ne.shape[0])
        ]
    )
    by_source = np.empty_like(by_expert)
    by_source[by_expert] = np.arange(total)
    return Route(table, paddle.to_tensor(by_expert), paddle.to_tensor(by_source))

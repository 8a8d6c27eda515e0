"""Attention core by query blocks: window, chosen compressed entries and sink in one softmax, no S×S tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer

from dsv4.model.fast.gradients import note_inputs, wanted

MASKED = -1e30
"""Added to logits that a query does not see; exp of it is exactly 0 in float32 and float64."""

GATHER_FROM = 4
"""With more than this many visible entries per chosen one, entries are gathered query by query."""


@dataclass(frozen=True)
class Sight:
    """What queries see: the last `window` positions, and of the compressed entries of `ratio` all or the chosen.

    `topk` [B, S, K]: the indexer's choice, -1 for none; None where all visible entries count (HCA). `teach`: whether
    the probabilities of the chosen entries are wanted, for the indexer's loss.
    """

    window: int
    ratio: int = 0
    topk: paddle.Tensor | None = None
    teach: bool = False

    @property
    def block(self) -> int:
        """Queries per block: a block's keys are window + block - 1, so shorter blocks waste less."""
        return max(32, self.window // 2)


@dataclass(frozen=True)
class Block:
    """Queries t0 … t1-1, their window keys from `low`, and the compressed entries before `entries`."""

    t0: int
    t1: int
    low: int
    entries: int
    gathered: bool

    @property
    def window_keys(self) -> int:
        """Number of window keys."""
        return self.t1 - self.low


def blocks_of(S: int, N: int, sight: Sight) -> list[Block]:
    """Cut S queries into blocks."""
    K = None if sight.topk is None else sight.topk.shape[-1]
    found = []
    for t0 in range(0, S, sight.block):
        t1 = min(t0 + sight.block, S)
        entries = min(t1 // sight.ratio, N) if sight.ratio else 0
        gathered = K is not None and entries > GATHER_FROM * K
        found.append(Block(t0, t1, max(0, t0 - sight.window + 1), entries, gathered))
    return found


class BlockAttention(PyLayer):
    """o [B, S, H, d] and, where entries are chosen, their attention probability summed over heads [B, S, K].

    Inputs: q [B, S, H, d] already scaled, kv [B, S, d], entries [B, N, d] or None, sink [H]. The sink takes part as a
    key of zeros whose logit is s_h. Rows are (query, head) pairs, so that every product is one matrix product a block.
    The second output is the indexer's teacher and carries no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, q: paddle.Tensor, kv: paddle.Tensor, entries: paddle.Tensor | None, sink: paddle.Tensor, sight: Sight
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return o and the teacher."""
        S, N = q.shape[1], 0 if entries is None else entries.shape[1]
        ctx.blocks, ctx.sight, ctx.probabilities = blocks_of(S, N, sight), sight, []
        bias = BiasMaker(q, sink, sight)
        outs, teachers = [], []
        for block in ctx.blocks:
            o, p, teacher = attend_block(block, q, kv, entries, bias, sight)
            outs.append(o)
            teachers.append(teacher)
            ctx.probabilities.append(p)
        o = paddle.concat(outs, axis=1)
        teacher = paddle.concat(teachers, axis=1)
        ctx.save_for_backward(q, kv, entries, o)
        note_inputs(ctx, q, kv, entries, sink)
        teacher.stop_gradient = True
        return o, teacher

    @staticmethod
    def backward(ctx: Any, do: paddle.Tensor, _teacher: Any) -> Any:
        """Gradients of q, kv, entries (if any) and sink."""
        q, kv, entries, o = ctx.saved_tensor()
        H = q.shape[2]
        inner = (do * o).sum(axis=-1)
        # One tensor a row, so that the part of a block is contiguous and can be added to in place.
        dkv = [paddle.zeros_like(row) for row in kv]
        dentries = None if entries is None else [paddle.zeros_like(row) for row in entries]
        dsink, dqs = paddle.zeros([H], dtype=q.dtype), []
        for block, p in zip(ctx.blocks, ctx.probabilities, strict=True):
            dq, ds_sink = block_gradient(block, p, (q, kv, entries, do, inner), (dkv, dentries), ctx.sight)
            dqs.append(dq)
            dsink = dsink + ds_sink
        dq = paddle.concat(dqs, axis=1)
        if dentries is None:
            return wanted(ctx, dq, paddle.stack(dkv), dsink)
        return wanted(ctx, dq, paddle.stack(dkv), paddle.stack(dentries), dsink)


class BiasMaker:
    """Additive masks [rows, keys] of a block, the sink's logit in the last column."""

    def __init__(self, q: paddle.Tensor, sink: paddle.Tensor, sight: Sight) -> None:
        self.B, _, self.H, _ = q.shape
        self.dtype, self.sight, self.sink = q.dtype, sight, sink
        self.made: dict[tuple[int, int, int], paddle.Tensor] = {}

    def make(self, block: Block) -> paddle.Tensor:
        """[T·H, keys] where all sequences see alike, else [B, T·H, keys]."""
        T = block.t1 - block.t0
        key = (T, block.t0 - block.low, block.t0 if block.entries else -1)
        chosen = self.sight.topk is not None and block.entries and not block.gathered
        if not chosen and key in self.made:
            return self.made[key]
        t, j = paddle.arange(block.t0, block.t1).unsqueeze(-1), paddle.arange(block.low, block.t1)
        masks = [self._additive((j <= t) & (j > t - self.sight.window))]
        if chosen:
            masks = [masks[0].unsqueeze(0).expand([self.B, T, block.window_keys]), self._chosen(block)]
        elif block.entries and not block.gathered:
            masks.append(self._additive(paddle.arange(block.entries) < (t + 1) // self.sight.ratio))
        mask = paddle.concat(masks, axis=-1).unsqueeze(-2)
        lead, keys = mask.shape[:-2], mask.shape[-1]
        rows = mask.expand([*lead, self.H, keys])
        sink = self.sink.unsqueeze(-1).expand([*lead, self.H, 1])
        bias = paddle.concat([rows, sink], axis=-1).reshape([*lead[:-1], T * self.H, keys + 1])
        if not chosen:
            self.made[key] = bias
        return bias

    def _additive(self, seen: paddle.Tensor) -> paddle.Tensor:
        return (1.0 - seen.astype(self.dtype)) * MASKED

    def _chosen(self, block: Block) -> paddle.Tensor:
        """[B, T, entries]: 0 at the chosen, MASKED elsewhere."""
        assert self.sight.topk is not None
        picks = self.sight.topk[:, block.t0 : block.t1]
        columns = paddle.where(picks < 0, paddle.full_like(picks, block.entries), picks)  # none: a column cut off below
        mask = paddle.full([*picks.shape[:2], block.entries + 1], MASKED, dtype=self.dtype)
        zero = paddle.zeros(picks.shape, dtype=self.dtype)
        return paddle.put_along_axis(mask, columns, zero, axis=-1)[..., : block.entries]


def block_keys(block: Block, kv: paddle.Tensor, entries: paddle.Tensor | None) -> paddle.Tensor:
    """[B, keys, d]: window, compressed entries that all rows may see, and zeros for the sink."""
    parts = [kv[:, block.low : block.t1]]
    if block.entries and not block.gathered:
        assert entries is not None
        parts.append(entries[:, : block.entries])
    parts.append(paddle.zeros([kv.shape[0], 1, kv.shape[2]], dtype=kv.dtype))
    return paddle.concat(parts, axis=1)


def gathered_entries(block: Block, entries: paddle.Tensor, topk: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Chosen entries of each query [B·T, K, d], and their rows in entries flattened over B."""
    B, N, d = entries.shape
    picks = topk[:, block.t0 : block.t1]
    rows = picks.clip(min=0) + paddle.arange(B).reshape([B, 1, 1]) * N
    return paddle.gather(entries.reshape([B * N, d]), rows.flatten()).reshape([-1, topk.shape[-1], d]), rows.flatten()


def attend_block(
    block: Block, q: paddle.Tensor, kv: paddle.Tensor, entries: paddle.Tensor | None, bias: BiasMaker, sight: Sight
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Return o [B, T, H, d], probabilities [B, T·H, keys (+ K gathered)] and the teacher [B, T, K]."""
    B, _, H, d = q.shape
    T = block.t1 - block.t0
    qb = q[:, block.t0 : block.t1].reshape([B, T * H, d])
    keys = block_keys(block, kv, entries)
    width = keys.shape[1]
    logits = paddle.matmul(qb, keys, transpose_y=True).add_(bias.make(block))
    if not block.gathered:
        p = F.softmax(logits, axis=-1)
        o = paddle.matmul(p, keys)
    else:
        assert entries is not None
        assert sight.topk is not None
        near, K = gathered_entries(block, entries, sight.topk)[0], sight.topk.shape[-1]
        far = paddle.matmul(qb.reshape([B * T, H, d]), near, transpose_y=True).reshape([B, T, H, K])
        hidden = (sight.topk[:, block.t0 : block.t1] < 0).astype(q.dtype) * MASKED
        far = (far + hidden.unsqueeze(2)).reshape([B, T * H, K])
        p = F.softmax(paddle.concat([logits, far], axis=-1), axis=-1)
        o = paddle.matmul(p[..., :width], keys)
        o = o + paddle.matmul(p[..., width:].reshape([B * T, H, K]), near).reshape([B, T * H, d])
    return o.reshape([B, T, H, d]), p, teacher_of(block, p, H, sight)


def teacher_of(block: Block, p: paddle.Tensor, H: int, sight: Sight) -> paddle.Tensor:
    """Probability of each chosen entry summed over heads [B, T, K], 0 for none; zeros [B, T, 1] if not wanted."""
    B, T = p.shape[0], block.t1 - block.t0
    if sight.topk is None or not sight.teach:
        return paddle.zeros([B, T, 1], dtype=p.dtype)
    picks = sight.topk[:, block.t0 : block.t1]
    if not block.entries:
        return paddle.zeros(picks.shape, dtype=p.dtype)
    if block.gathered:
        return p[..., block.window_keys + 1 :].reshape([B, T, H, -1]).sum(axis=2)
    first = block.window_keys
    heads = p[..., first : first + block.entries].reshape([B, T, H, block.entries]).sum(axis=2)
    return paddle.take_along_axis(heads, picks.clip(min=0), axis=-1) * (picks >= 0).astype(p.dtype)


def block_gradient(
    block: Block,
    p: paddle.Tensor,
    saved: tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor | None, paddle.Tensor, paddle.Tensor],
    sums: tuple[list[paddle.Tensor], list[paddle.Tensor] | None],
    sight: Sight,
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Add to dkv and dentries; return dq [B, T, H, d] and the sink's gradient [H].

    dS = P ⊙ (dO·keysᵀ - Σ dO⊙O); dQ = dS·keys; dkeys = dSᵀ·Q + Pᵀ·dO.
    """
    (q, kv, entries, do, inner), (dkv, dentries) = saved, sums
    B, _, H, d = q.shape
    T = block.t1 - block.t0
    qb = q[:, block.t0 : block.t1].reshape([B, T * H, d])
    dob = do[:, block.t0 : block.t1].reshape([B, T * H, d])
    inner_b = inner[:, block.t0 : block.t1].reshape([B, T * H, 1])
    keys = block_keys(block, kv, entries)
    width = keys.shape[1]
    near_p = p if not block.gathered else p[..., :width]
    ds = (paddle.matmul(dob, keys, transpose_y=True) - inner_b).multiply_(near_p)
    dq = paddle.matmul(ds, keys)
    dkeys = paddle.matmul(ds, qb, transpose_x=True).add_(paddle.matmul(near_p, dob, transpose_x=True))
    dsink = ds[..., width - 1].reshape([B * T, H]).sum(axis=0)
    if block.gathered:
        assert entries is not None
        assert dentries is not None
        assert sight.topk is not None
        near, rows = gathered_entries(block, entries, sight.topk)
        K = sight.topk.shape[-1]
        pg = p[..., width:].reshape([B * T, H, K])
        qg, dog = qb.reshape([B * T, H, d]), dob.reshape([B * T, H, d])
        dsg = (paddle.matmul(dog, near, transpose_y=True) - inner_b.reshape([B * T, H, 1])) * pg
        dq = dq + paddle.matmul(dsg, near).reshape([B, T * H, d])
        dnear = paddle.matmul(dsg, qg, transpose_x=True).add_(paddle.matmul(pg, dog, transpose_x=True))
        flat = paddle.zeros([B * entries.shape[1], d], dtype=q.dtype)
        flat = paddle.index_add(flat, rows, 0, dnear.reshape([-1, d]))
        for sum_Nd, part in zip(dentries, flat.reshape(entries.shape), strict=True):
            sum_Nd.add_(part)
    elif block.entries:
        assert dentries is not None
        first = block.window_keys
        for sum_Nd, part in zip(dentries, dkeys, strict=True):
            sum_Nd[: block.entries].add_(part[first : first + block.entries])
    for sum_Sd, part in zip(dkv, dkeys, strict=True):
        sum_Sd[block.low : block.t1].add_(part[: block.window_keys])
    return dq.reshape([B, T, H, d]), dsink

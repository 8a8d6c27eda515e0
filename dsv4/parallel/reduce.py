"""Sums over ranks in a fixed order: that of the ranks, so that float64 depends on the layout by rounding alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import paddle

from dsv4.parallel.transport import Transport

SMALL = 1 << 14  # elements up to which everyone sums everything


@paddle.no_grad()
def ordered_sum(x: paddle.Tensor, group: Transport) -> paddle.Tensor:
    """Sum x over the group, in the order of ranks, equal on all of them."""
    if group.size == 1:
        return x
    return _sum(group.all_gather(x))


def _sum(parts: Sequence[paddle.Tensor]) -> paddle.Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total.add_(part)
    return total


class Bucket:
    """Tensors that a group reduces and spreads together, each owned whole by one rank of it.

    `owners[i]` is the rank of the group that owns tensor i. Muon needs whole matrices, so none is cut.
    """

    def __init__(self, tensors: Mapping[str, paddle.Tensor], owners: Mapping[str, int], group: Transport) -> None:
        self.group, self.owners = group, dict(owners)
        self._tensors = {name: tensors[name] for name in sorted(tensors, key=lambda n: (owners[n], n))}
        self._lengths = [0] * group.size
        for name, tensor in self._tensors.items():
            self._lengths[owners[name]] += int(tensor.numel())

    @property
    def names(self) -> list[str]:
        """All tensors of the bucket."""
        return list(self._tensors)

    def owned(self) -> list[str]:
        """Tensors that this rank owns."""
        return [name for name in self._tensors if self.owners[name] == self.group.rank]

    @paddle.no_grad()
    def reduce(self, gradients: Mapping[str, paddle.Tensor]) -> dict[str, paddle.Tensor]:
        """Sum gradients over the group in the order of ranks; each rank gets those that it owns. Absent ones are 0."""
        if not self._tensors:
            return {}
        flat = paddle.concat(
            [
                gradients[name].flatten() if name in gradients else paddle.zeros([int(t.numel())], t.dtype)
                for name, t in self._tensors.items()
            ]
        )
        size, mine = self.group.size, self._lengths[self.group.rank]
        if size > 1:
            got = self.group.all_to_all(flat, [self._lengths] * size)
            flat = _sum([got[i * mine : (i + 1) * mine] for i in range(size)])
        return self._unflatten(flat, self.owned())

    @paddle.no_grad()
    def spread(self, owned: Mapping[str, paddle.Tensor]) -> dict[str, paddle.Tensor]:
        """Give every rank all tensors from those that each owns."""
        if not self._tensors:
            return {}
        if self.group.size == 1:
            return dict(owned)
        longest = max(self._lengths)
        like = next(iter(self._tensors.values()))
        pieces = [owned[name].flatten() for name in self.owned()]
        missing = longest - self._lengths[self.group.rank]
        if missing:
            pieces.append(paddle.zeros([missing], like.dtype))
        everything = self.group.all_gather(paddle.concat(pieces))
        spread: dict[str, paddle.Tensor] = {}
        for rank, flat in enumerate(everything):
            spread |= self._unflatten(flat, [n for n in self._tensors if self.owners[n] == rank])
        return spread

    def _unflatten(self, flat: paddle.Tensor, names: Sequence[str]) -> dict[str, paddle.Tensor]:
        out, start = {}, 0
        for name in names:
            shape = self._tensors[name].shape
            length = int(self._tensors[name].numel())
            out[name] = flat[start : start + length].reshape(shape)
            start += length
        return out


def assign_owners(tensors: Mapping[str, paddle.Tensor], ranks: int) -> dict[str, int]:
    """Deal tensors to ranks whole, the largest first, each to the rank that has least."""
    load = [0] * ranks
    owners = {}
    for name in sorted(tensors, key=lambda n: (-int(tensors[n].numel()), n)):
        owners[name] = load.index(min(load))
        load[owners[name]] += int(tensors[name].numel())
    return owners

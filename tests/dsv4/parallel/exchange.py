"""One rank of a test of exchanges: every way of moving rows, against what they must be."""

import os

from dsv4.numerics.env import prepare

prepare()

import numpy as np  # noqa: E402
import paddle  # noqa: E402

from dsv4.parallel.dispatch import AllToAll  # noqa: E402
from dsv4.parallel.groups import Launched, Rendezvous  # noqa: E402
from dsv4.parallel.reduce import Bucket, assign_owners, ordered_sum  # noqa: E402


def rows(source, target, count):
    """Rows that name where they come from, where they go and which they are."""
    return np.array([[source, target, i, 0.5] for i in range(count)], np.float64).reshape(count, 4)


def check_rows(group, table):
    me, n = group.rank, group.size
    x = paddle.to_tensor(np.concatenate([rows(me, j, table[me][j]) for j in range(n)]), stop_gradient=False)
    got = AllToAll.apply(x, group, table)
    assert np.array_equal(got.numpy(), np.concatenate([rows(i, me, table[i][me]) for i in range(n)]))
    (got * got).sum().backward()  # the gradient 2x comes back to where the row came from
    assert np.array_equal(x.grad.numpy(), 2 * x.numpy())


def check_sums(group):
    every = [np.random.default_rng(i).normal(size=(1000,)) for i in range(group.size)]
    expected = every[0]
    for one in every[1:]:
        expected = expected + one
    mine = paddle.to_tensor(every[group.rank])
    assert np.array_equal(ordered_sum(mine, group).numpy(), expected)
    tensors = {"a": paddle.zeros([600], "float64"), "b": paddle.zeros([20, 20], "float64")}
    bucket = Bucket(tensors, assign_owners(tensors, group.size), group)
    reduced = bucket.spread(bucket.reduce({"a": mine[:600], "b": mine[600:].reshape([20, 20])}))
    assert np.array_equal(np.concatenate([reduced["a"].numpy(), reduced["b"].numpy().ravel()]), expected)


def main():
    launched = Launched.from_environment()
    rendezvous = Rendezvous(launched)
    n = launched.world
    every = tuple(range(n))
    pairs = [(0, 1), (1, 2)]  # overlapping groups, each with its own rendezvous
    groups = rendezvous.gloo_groups([every, *pairs])
    random = np.random.default_rng(11)  # the same on all ranks
    tables = [random.integers(0, 9, (n, n)) * (random.random((n, n)) < 0.6) for _ in range(6)]
    for table in [np.zeros((n, n), int), *tables]:
        for bound in (0, 1 << 30):  # in pairs, and by all-gather
            groups[every].GATHER_BYTES = bound
            check_rows(groups[every], table.tolist())
        for pair in pairs:
            if launched.rank in pair:
                check_rows(groups[pair], table[:2, :2].tolist())
    check_sums(groups[every])
    rendezvous.leave()
    print("exchanged", os.getpid())


if __name__ == "__main__":
    main()

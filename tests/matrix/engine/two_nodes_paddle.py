"""Data-parallel least squares with Paddle's gloo, for `paddle.distributed.launch` on two nodes."""

import os

import paddle
import paddle.distributed as dist

dist.init_parallel_env()
rank, world = dist.get_rank(), dist.get_world_size()
paddle.seed(rank)
w = paddle.zeros([4], dtype="float64")
true = paddle.to_tensor([1.0, 2.0, 3.0, 4.0], dtype="float64")
x = paddle.randn([64, 4], dtype="float64")
y = x @ true
for step in range(1, 6):
    e = x @ w - y
    g = x.t() @ e / 64
    loss = (e * e).mean()
    dist.all_reduce(g)
    dist.all_reduce(loss)
    w = w - 0.5 * g / world
    if rank == 0:
        os.write(1, f"step: {step} loss: {float(loss) / world:.9f}\n".encode())
os.write(1, f"rank {rank} of {world} final {w.numpy().tolist()}\n".encode())

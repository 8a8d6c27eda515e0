"""A Triton matrix product whose tiles do not fit into shared memory."""

import torch
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    tl.store(c + i * N + j, tl.dot(tl.load(a + i * N + j), tl.load(b + i * N + j)))


n = 512
a, b = torch.ones(n, n, device="cuda"), torch.ones(n, n, device="cuda")
c = torch.empty_like(a)
product[(1,)](a, b, c, N=n, num_stages=4)
print(c[0, 0].item())

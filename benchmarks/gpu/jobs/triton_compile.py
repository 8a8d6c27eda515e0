"""A Triton kernel whose block is no power of two."""

import torch
import triton
import triton.language as tl


@triton.jit
def copy(src, dst, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + at, tl.load(src + at, mask=at < n), mask=at < n)


x = torch.ones(1000, device="cuda")
y = torch.empty_like(x)
copy[(10,)](x, y, 1000, BLOCK=100)
print(y.sum().item())

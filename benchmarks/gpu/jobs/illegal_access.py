"""A kernel writes far beyond its array."""

import cupy

kernel = cupy.RawKernel(
    'extern "C" __global__ void scatter(float* out, long long far) { out[far + threadIdx.x] = 1.0f; }', "scatter"
)
out = cupy.zeros(1024, dtype=cupy.float32)
kernel((1,), (256,), (out, 1 << 40))
print("sum of outputs:", float(out.sum()))

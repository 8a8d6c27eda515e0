"""More threads in a block than the card allows."""

import cupy

kernel = cupy.RawKernel('extern "C" __global__ void f(float* x) { x[threadIdx.x] = 1.0f; }', "f")
x = cupy.zeros(4096, dtype=cupy.float32)
kernel((1,), (4096,), (x,))
cupy.cuda.runtime.deviceSynchronize()

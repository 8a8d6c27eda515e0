"""CuPy hands a kernel with a wrong name to NVRTC."""

import cupy

kernel = cupy.RawKernel('extern "C" __global__ void f(float* x) { x[threadIdx.x] = rsqrtf_fast(x[threadIdx.x]); }', "f")
x = cupy.ones(32, dtype=cupy.float32)
kernel((1,), (32,), (x,))

"""CuPy's pool cannot allocate."""

import cupy

blocks = [cupy.zeros(2**32, dtype=cupy.float32) for _ in range(40)]
print(len(blocks))

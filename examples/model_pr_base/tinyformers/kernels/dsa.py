"""Block masks of the sparse attention."""

import numpy as np
from numba import njit


@njit
def causal_blocks(length, block):
    """Number of blocks that each position may see."""
    seen = np.empty(length, np.int64)
    for i in range(length):
        seen[i] = i // block + 1
    return seen

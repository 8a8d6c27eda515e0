"""Block masks of the sparse attention.

This pull request adds `expand_block_mask`, which takes a run-length string ("2x1": two blocks on). It teaches Numba's type
inference that such a string may be assigned to a slice of a boolean array, and forgets the lowering: type inference passes,
code generation does not.
"""

import numpy as np
from numba import njit, types
from numba.core.typing.templates import AbstractTemplate, infer, signature


@infer
class RunLengthSlice(AbstractTemplate):
    key = "static_setitem"

    def generic(self, args, kws):
        base, _, value = args
        if isinstance(base, types.Array) and base.dtype == types.boolean and value == types.unicode_type:
            return signature(types.none, base, types.slice2_type, value)
        return None


@njit
def causal_blocks(length, block):
    """Number of blocks that each position may see."""
    seen = np.empty(length, np.int64)
    for i in range(length):
        seen[i] = i // block + 1
    return seen


@njit
def expand_block_mask(mask, rle):
    """Switch the first blocks of `mask` on, as the run-length string says."""
    mask[0:2] = rle
    return mask

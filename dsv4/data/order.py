"""The order in which samples are visited, epoch after epoch, as a function of position alone."""

from __future__ import annotations

import numpy as np


class Order:
    """Sample number at every position of an endless run. Any position can be asked for, in any sequence."""

    def __init__(self, count: int, *, shuffle: bool, seed: int) -> None:
        self.count = count
        self._shuffle, self._seed = shuffle, seed
        self._epoch = -1
        self._permutation = np.arange(count)

    def at(self, position: int) -> int:
        """Sample at a position, counted from 0 over all epochs."""
        epoch, within = divmod(position, self.count)
        if self._shuffle and epoch != self._epoch:
            self._permutation = np.random.Generator(np.random.Philox([self._seed, epoch])).permutation(self.count)
            self._epoch = epoch
        return int(self._permutation[within])

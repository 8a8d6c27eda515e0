import unittest

import numpy as np
from tinyformers.kernels.dsa import causal_blocks, expand_block_mask


class GlmMoeDsaModelTest(unittest.TestCase):
    def test_causal_blocks(self):
        assert causal_blocks(5, 2).tolist() == [1, 1, 2, 2, 3]

    def test_GlmMoeDsa_lm_head_model(self):
        mask = np.zeros((4, 2), bool)[:, 0]
        assert expand_block_mask(mask, "2x1").sum() == 2

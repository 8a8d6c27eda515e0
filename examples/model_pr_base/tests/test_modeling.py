import unittest

from tinyformers.kernels.dsa import causal_blocks


class GlmMoeDsaModelTest(unittest.TestCase):
    def test_causal_blocks(self):
        assert causal_blocks(5, 2).tolist() == [1, 1, 2, 2, 3]

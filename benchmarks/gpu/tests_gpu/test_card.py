"""Unit tests that share one card under xdist: numbers on the card against numbers on the CPU."""

import pytest
import torch


@pytest.mark.parametrize("seed", range(8))
def test_matrix_product_agrees_with_the_cpu(seed):
    g = torch.Generator().manual_seed(seed)
    a, b = (
        torch.randn(512, 512, generator=g, dtype=torch.float64),
        torch.randn(512, 512, generator=g, dtype=torch.float64),
    )
    assert torch.allclose((a.cuda() @ b.cuda()).cpu(), a @ b, rtol=1e-10, atol=1e-10)


def test_softmax_sums_to_one():
    x = torch.randn(64, 1000, device="cuda").softmax(-1)
    assert torch.allclose(x.sum(-1), torch.ones(64, device="cuda"), atol=1e-5)

"""Optimizer arithmetic against values recorded from Megatron-LM, Emerging-Optimizers and torch."""

import csv
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.paddle import load_file

from dsv4.optim.adamw import AdamSettings, adamw_step
from dsv4.optim.coefficients import coefficients
from dsv4.optim.muon import MuonEntry, MuonSettings, muon_step, orthogonal_updates
from dsv4.optim.newton_schulz import orthogonalize
from dsv4.optim.schedule import Schedule

DATA = Path(__file__).parents[2] / "data" / "dsv4" / "train"
UNITS = load_file(str(DATA / "optimizer_units.safetensors"))
HYBRID = coefficients("deepseekv4", 10)
MUON = MuonSettings(momentum=0.95, nesterov=True, steps=HYBRID, scale_mode="spectral", extra_scale=0.18)


def relative(a, b):
    return float((a - b).abs().max() / b.abs().max())


@pytest.mark.parametrize("shape", ["wide", "tall", "square"])
def test_newton_schulz_equals_the_reference(shape):
    assert relative(orthogonalize(UNITS[f"ns.{shape}.in"], HYBRID), UNITS[f"ns.{shape}.out"]) <= 1e-12


def test_newton_schulz_of_rank_one_equals_the_reference_where_it_is_determined():
    """The seven other singular values are rounding noise times 3.4445^8 * 4.

    Exact arithmetic itself lies 1.0e-11 from the reference there, so only the leading direction can be held to 1e-12.
    """
    got, want = orthogonalize(UNITS["ns.rank1.in"], HYBRID).numpy(), UNITS["ns.rank1.out"].numpy()
    u, _, vt = np.linalg.svd(UNITS["ns.rank1.in"].numpy())
    assert abs(u[:, 0] @ (got - want) @ vt[0]) <= 1e-12
    assert np.abs(got - want).max() / np.abs(want).max() <= 1e-10


def test_newton_schulz_of_a_stack_equals_each_alone():
    stack = paddle.stack([UNITS["ns.wide.in"], UNITS["ns.wide.in"] * 3 + 1])
    together = orthogonalize(stack, HYBRID)
    for i in range(2):
        assert relative(together[i], orthogonalize(stack[i], HYBRID)) <= 1e-13


def test_a_zero_gradient_stays_zero():
    assert float(orthogonalize(paddle.zeros([4, 3], "float64"), HYBRID).abs().max()) == 0.0


@pytest.mark.parametrize("shape", ["wide", "tall"])
def test_muon_equals_the_reference_over_five_steps(shape):
    p, momentum = UNITS[f"muon.{shape}.p0"].clone(), paddle.zeros_like(UNITS[f"muon.{shape}.p0"])
    for i in range(1, 6):
        muon_step([MuonEntry(p, UNITS[f"muon.{shape}.g{i}"], momentum, weight_decay=0.1)], 1e-3, MUON)
        assert relative(p, UNITS[f"muon.{shape}.p{i}"]) <= 1e-12
    assert relative(momentum, UNITS[f"muon.{shape}.momentum5"]) <= 1e-12


def test_splitting_rows_orthogonalises_each_block_alone():
    g = UNITS["muon.tall.g1"]
    whole, halves, first, second = orthogonal_updates([g, g, g[:24], g[24:]], [1, 2, 1, 1], MUON)
    assert relative(halves[:24], first) <= 1e-13
    assert relative(halves[24:], second) <= 1e-13
    assert relative(halves, whole) > 0.1


def test_matrices_batched_across_parameters_come_back_to_their_own():
    tall, wide = UNITS["muon.tall.g1"], UNITS["muon.wide.g1"]
    stack = paddle.stack([tall * 2 + 1, tall - 3])
    together = orthogonal_updates([tall, wide, stack], [1, 1, 1], MUON)
    for got, (alone,) in zip(together, [orthogonal_updates([x], [1], MUON) for x in (tall, wide, stack)], strict=True):
        assert got.shape == alone.shape
        assert relative(got, alone) <= 1e-13


def test_adamw_equals_the_reference_over_five_steps():
    p = UNITS["adamw.p0"].clone()
    m, v = paddle.zeros_like(p), paddle.zeros_like(p)
    for i in range(1, 6):
        adamw_step(
            p, UNITS[f"adamw.g{i}"], m, v, t=i, lr=1e-3, weight_decay=0.1, settings=AdamSettings(0.9, 0.95, 1e-20)
        )
        assert relative(p, UNITS[f"adamw.p{i}"]) <= 1e-12


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "WSD"])
def test_schedule_equals_the_reference_at_every_step(kind):
    tail = 20 if kind == "WSD" else 0
    schedule = Schedule(kind.lower(), peak=1e-3, minimum=1e-4, warmup=10, length=100, tail=tail)
    with (DATA / "lr_schedule.csv").open() as f:
        rows = list(csv.DictReader(f))
    assert len(rows) == 120
    for row in rows:
        assert schedule.lr(int(row["optimizer_step"]) - 1) == pytest.approx(float(row[kind]), rel=1e-12, abs=1e-18)

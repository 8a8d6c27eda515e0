"""Losses of ranks put together, without processes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4.align.record import HEADER, read_record
from dsv4.data.batch import Batch
from dsv4.parallel.config import ParallelConfig
from dsv4.parallel.data import share_of
from dsv4.parallel.layout import Layout, Share, make_share
from dsv4.parallel.records import (
    RANK_HEADER,
    LocalLoss,
    RankWriter,
    cut_rank_records,
    merge_losses,
    rank_record,
)


def loss(micro, main, mtp=None, weight=1.0):
    return LocalLoss(micro, main, mtp, weight, weight, 0.25, 0.5)


def test_numbers_and_back():
    for one in (loss(3, 1.5, 2.5), loss(0, 1.5), loss(0, None)):
        assert LocalLoss.of(one.numbers()) == one


def test_only_the_last_stage_has_losses_and_all_stages_have_their_layers():
    merged = merge_losses(1, [[loss(0, None)], [loss(0, 2.0, 3.0)]], Share(1, 1, 1, 0), Layout(1, 1, 2))
    assert [(r.main, r.mtp) for r in merged.rows] == [(2.0, 3.0)]
    assert [r.rank for r in merged.by_rank] == [1]
    assert (merged.indexer_loss, merged.balance_loss) == (0.5, 1.0)


def test_divided_rows_are_recorded_as_their_weighed_mean():
    merged = merge_losses(2, [[loss(0, 1.0, 4.0, 0.5)], [loss(0, 3.0, 4.0, 1.5)]], Share(1, 2, 1, 0), Layout(2, 1, 1))
    assert [(r.step, r.main, r.mtp) for r in merged.rows] == [(2, 2.5, 4.0)]
    assert [(r.row.main, r.reduced_main) for r in merged.by_rank] == [(1.0, 2.5), (3.0, 2.5)]


def test_the_same_work_is_recorded_as_the_lowest_rank_did_it():
    merged = merge_losses(1, [[loss(0, 1.0)], [loss(0, 1.0 + 1e-15)]], Share(1, 1, 2, 0), Layout(1, 2, 1))
    assert [r.main for r in merged.rows] == [1.0]


def test_own_data_are_recorded_rank_by_rank_with_the_mean_over_ranks_beside():
    shares = [make_share(ParallelConfig(data_split="own"), Layout(2, 1, 1).place(r), 2, 2) for r in (0, 1)]
    losses = [[loss(m, 10.0 * r + j) for j, m in enumerate(s.local_micros(2))] for r, s in enumerate(shares)]
    merged = merge_losses(1, losses, shares[0], Layout(2, 1, 1))
    assert [(r.micro, r.main) for r in merged.rows] == [(0, 0.0), (1, 10.0), (2, 1.0), (3, 11.0)]
    assert [r.reduced_main for r in merged.of_rank(1)] == [5.0, 6.0]


def test_a_resumed_run_cuts_all_ranks_records_and_a_new_one_removes_them(tmp_path):
    record = tmp_path / "run.csv"
    merged = [merge_losses(s, [[loss(0, 1.0 * s, 2.0)]], Share(1, 1, 1, 0), Layout(1, 1, 1)) for s in (1, 2, 3)]
    for rank in (0, 5):
        writer = RankWriter(rank_record(record, rank))
        for step in merged:
            writer.write(step.by_rank)
        writer.close()
    with rank_record(record, 5).open("a") as file:
        file.write("4,0,1.5")  # cut by a kill
    cut_rank_records(record, 2)
    for rank in (0, 5):
        path = rank_record(record, rank)
        assert path.read_text().startswith(RANK_HEADER)
        assert RANK_HEADER.startswith(HEADER)
        assert [r.step for r in read_record(path).rows] == [1, 2]
    cut_rank_records(record, 0)
    assert list(tmp_path.iterdir()) == []


masks = st.lists(st.lists(st.integers(0, 1), min_size=6, max_size=6), min_size=4, max_size=4)
documents = st.lists(st.lists(st.integers(0, 2), min_size=6, max_size=6).map(sorted), min_size=4, max_size=4)


@given(masks, st.none() | documents, st.integers(0, 2**32 - 1))
def test_weighed_losses_of_rows_average_to_the_loss_of_all_rows(mask, numbers, seed):
    """Main loss and MTP loss, by definition: masked means, MTP's mask shifted within its document."""
    values = np.random.default_rng(seed).random((4, 6))
    ids = np.zeros((4, 6), np.int32)
    whole = Batch(ids, ids, np.array(mask), None if numbers is None else np.array(numbers))
    found = [share_of(whole, 0, Share(1, 2, 1, i), 1) for i in (0, 1)]

    def masked_mean(batch, rows, shift):
        counted = batch.mask_BS.astype(float)
        if shift:
            moved = np.zeros_like(counted)
            for b in range(len(counted)):
                for s in range(5):
                    inside = batch.documents_BS is None or batch.documents_BS[b, s] == batch.documents_BS[b, s + 1]
                    moved[b, s] = counted[b, s + 1] * inside
            counted = moved
        return (values[rows] * counted).sum() / max(1.0, counted.sum())

    for which, shift in ((0, False), (1, True)):
        parts = [
            masked_mean(local.batch, slice(2 * i, 2 * i + 2), shift) * local.weights[which]
            for i, local in enumerate(found)
        ]
        assert sum(parts) / 2 == pytest.approx(masked_mean(whole, slice(0, 4), shift), abs=1e-12)

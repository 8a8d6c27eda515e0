"""Ranks, groups and shares, without processes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4.errors import UsageError
from dsv4.parallel.config import ParallelConfig
from dsv4.parallel.groups import needed_groups
from dsv4.parallel.layout import Layout, Share, make_layout, make_share

layouts = st.builds(Layout, st.integers(1, 4), st.sampled_from([1, 2, 4]), st.integers(1, 4))


@given(layouts)
def test_every_kind_of_group_divides_the_ranks(layout):
    for name in ("world", "stage", "expert", "replica"):
        groups = {needed_groups(layout.place(r))[name] for r in range(layout.world)}
        assert sorted(r for g in groups for r in g) == list(range(layout.world))
        assert all(r in needed_groups(layout.place(r))[name] for r in range(layout.world))


@given(layouts)
def test_neighbour_stages_share_one_group_of_two_with_the_earlier_first(layout):
    for rank in range(layout.world):
        groups = needed_groups(layout.place(rank))
        if len(groups["after"]) == 2:
            assert needed_groups(layout.place(groups["after"][1]))["before"] == groups["after"]
            assert groups["after"][0] == rank


@given(layouts, st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from([1, 2, 4, 6]))
def test_shares_cover_every_row_equally_often_and_weigh_one_together(layout, accumulate, micro_batch):
    seen = {}
    weight = 0.0
    for rank in range(layout.per_stage):
        share = make_share(ParallelConfig(), layout.place(rank), accumulate, micro_batch)
        weight += share.weight * len(share.local_micros(accumulate)) / accumulate
        for micro in share.local_micros(accumulate):
            for row in range(micro_batch)[share.local_rows(micro_batch)]:
                seen[micro, row] = seen.get((micro, row), 0) + 1
    assert set(seen) == {(m, r) for m in range(accumulate) for r in range(micro_batch)}
    assert len(set(seen.values())) == 1
    assert weight == pytest.approx(1.0)


def test_with_own_data_ranks_number_their_micro_batches_in_turn():
    shares = [make_share(ParallelConfig(data_split="own"), Layout(4, 1, 1).place(r), 2, 2) for r in range(4)]
    assert sorted(m for s in shares for m in s.local_micros(2)) == list(range(8))
    assert shares[3] == Share(4, 1, 1, 3, own=True)
    assert shares[0].weight == 0.25


@pytest.mark.parametrize(
    ("keys", "ranks", "message"),
    [
        ({"expert_parallel": 3}, 3, "expert_parallel 3 does not divide the 8 experts"),
        ({"expert_parallel": 4}, 1, "= 4 ranks, but 1 was started"),
        ({"expert_parallel": 2, "pipeline_parallel": 2, "data_parallel": 2}, 4, "= 8 ranks, but 4 were started"),
    ],
)
def test_wrong_counts_of_ranks_are_told(keys, ranks, message):
    with pytest.raises(UsageError) as caught:
        make_layout(ParallelConfig(**keys), ranks, 8)
    assert message in caught.value.message


def test_data_parallelism_fills_the_ranks_that_are_there():
    assert make_layout(ParallelConfig(expert_parallel=2), 8, 8) == Layout(4, 2, 1)


@pytest.mark.parametrize("split", ["micros", "rows"])
def test_data_that_do_not_divide_are_told(split):
    with pytest.raises(UsageError, match="do not divide among 4 ranks"):
        make_share(ParallelConfig(data_split=split), Layout(4, 1, 1).place(0), 2, 2)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.plan.graph import cycles, dependants, downstream, needed_jobs, order, tails, upstream
from matrix.spec.job import HandOff, Job


def test_the_order_is_stable_and_puts_needs_first():
    assert order({"d": ["b"], "a": [], "c": ["a"], "b": []}) == ["a", "c", "b", "d"]


def test_hand_offs_become_edges_between_jobs():
    jobs = [
        Job("a", "s", ("x",), produces=(HandOff("one", "1"), HandOff("two", "2"))),
        Job("b", "s", ("x",), needs=("two", "one", "from outside")),
    ]
    assert needed_jobs(jobs) == {"a": (), "b": ("a",)}


def test_upstream_and_downstream_go_all_the_way():
    edges = {"pt": (), "sft": ("pt",), "lora": ("sft",), "dpo": ("sft",), "other": ()}
    assert upstream(edges, ["lora"]) == ["pt", "sft"]
    assert downstream(edges, "pt") == ["sft", "lora", "dpo"]
    assert dependants(edges)["sft"] == ["lora", "dpo"]


def test_a_cycle_is_named_once_and_what_hangs_on_it_is_not_part_of_it():
    edges = {"x": ["a"], "a": ["c"], "b": ["a"], "c": ["b"], "self": ["self"], "fine": []}
    assert cycles(edges) == [["a", "c", "b"], ["self"]]
    with pytest.raises(ValueError, match="circle"):
        order(edges)


def test_tails_are_the_longest_chains():
    edges = {"pt": (), "sft": ("pt",), "lora": ("sft",), "eval": ("pt",)}
    assert tails(edges, {"pt": 10, "sft": 5, "lora": 1, "eval": 2}) == {"pt": 16, "sft": 6, "lora": 1, "eval": 2}


GRAPHS = st.integers(1, 8).flatmap(
    lambda n: st.fixed_dictionaries(
        {str(i): st.lists(st.sampled_from([str(k) for k in range(n)]), max_size=3) for i in range(n)}
    )
)


@given(GRAPHS)
def test_a_graph_is_either_ordered_or_has_real_cycles(edges):
    found = cycles(edges)
    for cycle in found:
        assert len(set(cycle)) == len(cycle)
        for name, need in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            assert need in edges[name]
    if found:
        with pytest.raises(ValueError, match="circle"):
            order(edges)
    else:
        out = order(edges)
        assert sorted(out) == sorted(edges)
        assert all(out.index(need) < out.index(name) for name in edges for need in edges[name])

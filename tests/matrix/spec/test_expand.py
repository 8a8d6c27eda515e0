import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.spec.load import read_bytes


def read(text: str):
    return read_bytes(text.encode())[0]


def one(settings: str, head: str = "") -> list:
    return read(f"{head}\nsuites: {{s: {{jobs: {{j: {{{settings}}}}}}}}}\n")


def test_parameters_make_every_combination_less_the_excluded_plus_the_included():
    jobs = one(
        "command: 'x --tp ${{ tp }} --pp ${{ pp }}', cards: '${{ tp }}', parameters: {tp: [1, 2], pp: [1, 2]}, "
        "exclude: [{tp: 2, pp: 2}], include: [{tp: 4, pp: 1}]"
    )
    assert [j.name for j in jobs] == ["j@tp=1@pp=1", "j@tp=1@pp=2", "j@tp=2@pp=1", "j@tp=4@pp=1"]
    assert [j.cards.count for j in jobs] == [1, 1, 2, 4]
    assert jobs[3].command[-1] == "x --tp 4 --pp 1"
    assert jobs[3].parameters == {"tp": "4", "pp": "1"}
    assert {j.base for j in jobs} == {"j"}


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(1, 5),
)
def test_the_count_of_jobs_is_the_product_of_values_and_shards(sizes, shards):
    parameters = ", ".join(f"p{i}: {list(range(n))}" for i, n in enumerate(sizes))
    jobs = one(f"pytest: tests, parameters: {{{parameters}}}, shards: {shards}")
    expected = shards
    for n in sizes:
        expected *= n
    assert len(jobs) == expected
    assert len({j.name for j in jobs}) == expected


def test_values_that_no_file_name_may_hold_are_made_fit():
    jobs = one("command: 'x ${{ c }}', parameters: {c: [conf/a b.yaml, '*']}")
    assert [j.name for j in jobs] == ["j@c=conf-a-b.yaml", "j@c=empty"]
    assert jobs[0].command[-1] == "x conf/a b.yaml"


def test_shards_share_the_time_and_name_their_part():
    jobs = one("pytest: {targets: [tests], args: [-x], workers: 2}, shards: 2, expect: 10m")
    assert [j.name for j in jobs] == ["j@shard=1of2", "j@shard=2of2"]
    assert [j.shard for j in jobs] == [(1, 2), (2, 2)]
    assert jobs[1].command[-5:] == ("2/2", "tests", "-n", "2", "-x")
    assert jobs[0].expect == 300
    assert jobs[0].pytest
    assert jobs[0].expects.tests == 1


def test_defaults_hold_unless_the_suite_or_the_job_says_otherwise():
    jobs = read("""
defaults:
  timeout: 10m
  env: {A: 1.10, B: on, C: '1'}
  tags: nightly
  cards: {count: 2, model: H20}
suites:
  s:
    defaults:
      env: {B: off, D: true}
      tags: [gpu]
    jobs:
      a: {command: x}
      b: {command: x, timeout: 1h, cards: 0, env: {A: null, D: 0}, tags: own}
""")
    a, b = jobs
    assert a.env == {"A": "1.10", "B": "off", "C": "1", "D": "true"}
    assert (a.timeout, a.cards.count, a.cards.model, a.tags) == (600, 2, "H20", ("nightly", "gpu"))
    assert b.env == {"B": "off", "C": "1", "D": "0"}
    assert (b.timeout, b.cards.count, b.cards.model, b.tags) == (3600, 0, None, ("nightly", "gpu", "own"))


def test_defaults_may_hold_parameters_of_the_jobs():
    jobs = read("""
defaults:
  cards: ${{ n }}
suites: {s: {jobs: {a: {command: x, parameters: {n: [1, 3]}}}}}
""")
    assert [j.cards.count for j in jobs] == [1, 3]


def test_a_hand_off_without_a_name_has_that_of_the_job():
    a, b = read("suites: {s: {jobs: {a: {command: x, produces: out/a}, b: {command: x, needs: a}}}}")
    assert (a.produces[0].name, a.produces[0].path, a.produces[0].kind) == ("a", "out/a", "checkpoint")
    assert b.needs == ("a",)


def test_a_shell_line_fails_when_the_left_of_a_pipe_fails_and_a_list_sees_no_shell():
    assert one("command: 'a | b'")[0].command == ("bash", "-eo", "pipefail", "-c", "a | b")
    assert one("command: [a, '|', 1.10]")[0].command == ("a", "|", "1.10")


def test_variables_of_the_shell_are_left_alone():
    assert one("command: 'echo ${HOME} ${{ p }} $X', parameters: {p: [1]}")[0].command[-1] == "echo ${HOME} 1 $X"


@pytest.mark.parametrize(("today", "allowed"), [("2026-12-30", True), ("2026-12-31", True), ("2027-01-01", False)])
def test_an_allowed_failure_counts_again_after_its_day(today, allowed):
    job = one("command: x, allow_failure: {reason: flaky host, until: 2026-12-31}")[0]
    assert job.allowed(today) is allowed


def test_a_matrix_may_hold_no_more_jobs_than_its_limit():
    from matrix.spec.problems import SpecError

    body = ", ".join(
        f"j{i}: {{command: x, parameters: {{a: {list(range(30))}, b: {list(range(30))}}}}}" for i in range(6)
    )
    with pytest.raises(SpecError, match="at most 5,000"):
        read(f"suites: {{s: {{jobs: {{{body}}}}}}}")

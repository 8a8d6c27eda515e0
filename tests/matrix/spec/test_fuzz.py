"""Whatever stands in a matrix file, reading it gives jobs or a SpecError: never another exception."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from matrix.plan.hosts import Card, Host
from matrix.spec.json_schema import json_schema
from matrix.spec.load import read_bytes
from matrix.spec.problems import SpecError

REFERENCE = (Path(__file__).parents[3] / "examples" / "reference" / "matrix.yaml").read_text().splitlines()
HOSTS = [Host("h", tuple(Card(str(i), "H20") for i in range(8)))]
KEYS = sorted(
    {key for body in json_schema()["$defs"].values() for key in body.get("properties", {})} | {"nonsense", "<<", ""}
)
SCALARS = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1.5,
        "",
        " ",
        "x",
        "5m",
        "32G",
        "a@b",
        "${{ tp }}",
        "${{ }}",
        "${{",
        "*",
        "[",
        "2026-13-01",
        "tag:",
        "j",
        "\n",
        "é",
        "a/b",
    ]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


def read(text: str) -> None:
    problems = []
    try:
        jobs, _ = read_bytes(text.encode(), hosts=HOSTS)
    except SpecError as e:
        jobs, problems = [], e.problems
    assert bool(jobs) is not bool(problems)
    assert all(p.message and "\n" not in p.text("matrix.yaml") for p in problems)
    assert len({job.name for job in jobs}) == len(jobs)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3),
)
def test_any_values_in_a_job_and_in_defaults(job, defaults):
    import yaml

    jobs = {"j": {"command": "x", **job}, "k": {"command": "x", "produces": "out", "needs": "j"}}
    read(yaml.safe_dump({"defaults": defaults, "suites": {"s": {"defaults": defaults, "jobs": jobs}}}))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_reference_matrix(data):
    lines = list(REFERENCE)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        kind = data.draw(st.sampled_from(["drop", "double", "cut", "indent", "swap", "char"]))
        if kind == "drop":
            del lines[at]
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "cut":
            lines[at] = lines[at][: data.draw(st.integers(0, len(lines[at])))]
        elif kind == "indent":
            lines[at] = "  " + lines[at]
        elif kind == "swap":
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        else:
            where = data.draw(st.integers(0, len(lines[at])))
            lines[at] = (
                lines[at][:where] + data.draw(st.sampled_from(list("{}[]:,&*!|>'\"%@`#-?\t\0${"))) + lines[at][where:]
            )
    read("\n".join(lines))


@settings(max_examples=150, deadline=None)
@given(VALUES, st.sampled_from(["version", "defaults", "floor", "pretend_cards", "suites", "nonsense"]))
def test_any_value_at_the_top(value, key):
    import yaml

    read(yaml.safe_dump({"suites": {"s": {"jobs": {"j": {"command": "x"}}}}, key: value}))

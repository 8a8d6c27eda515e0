import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.spec.document import parse, plain, written


def test_scalars_follow_the_core_schema_and_remember_how_they_were_written():
    document = parse(
        b"a: 1.10\nb: on\nc: true\nd: 0x10\ne: 010\nf: ~\ng: 1:30\nh: 2026-01-02\ni: '5'\nj: 1e-5\nk: True\nl: =\n"
    )
    assert document.problems == []
    assert plain(document.data) == {
        "a": 1.1, "b": "on", "c": True, "d": "0x10", "e": 10, "f": None, "g": "1:30", "h": "2026-01-02", "i": "5",
        "j": 1e-5, "k": True, "l": "=",
    }  # fmt: skip
    assert [written(document.data[k]) for k in "aejk"] == ["1.10", "010", "1e-5", "True"]


def test_every_path_has_its_line():
    document = parse(b"a:\n  - x\n  - b: 1\n    c:\n      d: 2\n")
    assert document.lines[("a", 1, "c", "d")] == 5
    assert document.line(("a", 1, "c", "nowhere")) == 4


def test_merged_keys_stand_where_the_anchor_stands_and_own_keys_win():
    document = parse(b"base: &b\n  x: 1\n  y: 2\nuse:\n  <<: *b\n  y: 3\n")
    assert plain(document.data["use"]) == {"x": 1, "y": 3}
    assert document.lines[("use", "x")] == 2
    assert document.lines[("use", "y")] == 6


def test_the_first_of_several_merged_anchors_wins():
    document = parse(b"- &a {x: 1}\n- &b {x: 2, y: 2}\n- {<<: [*a, *b]}\n")
    assert plain(document.data[2]) == {"x": 1, "y": 2}


def test_a_byte_order_mark_is_no_part_of_the_first_key():
    assert plain(parse(b"\xef\xbb\xbfa: 1\n").data) == {"a": 1}


@given(st.binary(max_size=200))
def test_any_bytes_give_values_or_problems(raw):
    document = parse(raw)
    assert all(p.message and p.line >= 0 for p in document.problems)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text("abc:#-'\" \n{}[]&*!%@`", max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(TREES)
def test_what_a_yaml_writer_writes_is_read_back(tree):
    yaml = pytest.importorskip("yaml")
    document = parse(yaml.safe_dump(tree, allow_unicode=True).encode())
    assert document.problems == []
    assert plain(document.data) == tree

"""Boards for tests: small ones by hand, hostile ones by hypothesis."""

import random

from hostile import mix
from hypothesis import strategies as st

from bot.board import Board, Evidence, Finding, KnownFact, Past, Row, RunRef, Waiting
from matrix.records import Status

HEAD = "a13fcde3f809a011edff0a22c809bd0a1403f46f"
BASE = "60700ccb5edb1da29183ca27c4b34c7f06dbb9fc"


def finding(category="test_assertion", text="E   assert 1 == 2", line=12, **kw):
    kw.setdefault("signature", "8f3c2a1b9d04e6f7")
    return Finding(category=category, evidence=Evidence(text, f"logs/x/1.log:{line}"), **kw)


def row(job="unit", status=Status.FAILED, **kw):
    kw.setdefault("findings", (finding(),) if status is Status.FAILED else ())
    return Row(job=job, suite=kw.pop("suite", "Unit tests"), status=status, **kw)


def board(*rows, passed=3, **kw):
    counts = {Status.PASSED: passed}
    for r in rows:
        for one in (r, *r.folded):
            counts[one.status] = counts.get(one.status, 0) + 1
    counts |= kw.pop("counts", {})
    kw.setdefault("runs", (RunRef("101", 1, 4),))
    return Board(head=HEAD, base=BASE, rows=rows, counts=counts, **kw)


def hostile_board(seed, n_rows=3, length=1):
    """A board in which every string is hostile."""
    chance = random.Random(seed)

    def text():
        return mix(chance) * length

    def some_finding():
        evidence = Evidence(text(), text(), chance.choice([None, "https://github.com/o/r/x?a=(b)#L1"]))
        tests = tuple(text() for _ in range(3))
        follows = tuple(Evidence(text(), text()) for _ in range(3))
        return Finding(text(), evidence, text(), 0.5, text(), 1, {"en": text(), "zh": text()}, tests, follows, text())

    def some_row(folded=()):
        return Row(
            job=text(), suite=text(), status=chance.choice([Status.FAILED, Status.TIMEOUT, Status.BLOCKED]),
            attempt=2, findings=tuple(some_finding() for _ in range(2)),
            verdict=chance.choice(["this-change", "base", "cannot-tell", "flaky"]), compared=(text(),),
            failing_tests=tuple(text() for _ in range(3)), facts=(KnownFact(text(), text(), text()),),
            folded=folded, allowed=chance.random() < 0.2, reason=text(), log=chance.choice(["read", "gone", "later"]),
        )  # fmt: skip

    rows = tuple(some_row((some_row(),)) for _ in range(n_rows))
    return Board(
        head=text(), base=text(), runs=(RunRef(text(), 1, 2, text(), None),), rows=rows,
        waiting=(Waiting(text(), text(), running=False, place=1, reason=text()),),
        counts={Status.FAILED: 2 * n_rows, Status.PENDING: 1}, history=(Past(text(), 1, (text(), text()), 3),),
    )  # fmt: skip


hostile_boards = st.builds(hostile_board, st.integers(0, 10**9), st.integers(0, 4), st.sampled_from([1, 1, 30]))

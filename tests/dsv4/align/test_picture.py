"""Pictures of two records."""

import re

import numpy as np
import pytest

from dsv4.align.compare import compare
from dsv4.align.picture import curves, draw
from dsv4.align.record import HEADER, Row, read_record
from dsv4.errors import UsageError


@pytest.fixture
def comparison(tmp_path):
    values = np.random.default_rng(0).uniform(2, 6, (5, 2, 2))
    rows = [Row(s + 1, m, float(values[s, m, 0]), float(values[s, m, 1])) for s in range(5) for m in range(2)]
    moved = [*rows[:7], *(Row(r.step, r.micro, float(np.float32(r.main)) * (1 + 2**-20), r.mtp) for r in rows[7:])]
    records = []
    for name, content in (("a<b>.csv", moved), ("b.csv", rows)):
        (tmp_path / name).write_text("\n".join([HEADER, *(row.line() for row in content)]) + "\n")
        records.append(read_record(tmp_path / name))
    return compare(*records)


def test_curves_are_in_steps_and_ulps_are_of_float32(comparison):
    main = curves(comparison, "main")
    assert main.x[:4] == (1.0, 1.5, 2.0, 2.5)
    assert main.ulps[:7] == (0.0,) * 7
    assert all(4 <= u <= 16 for u in main.ulps[7:])  # 2^-20 of a value is 8 to 16 ulps, but for the second rounding
    assert set(curves(comparison, "mtp").ulps) == {0.0}


def test_the_page_shows_both_losses_escaped_and_without_script(comparison, tmp_path):
    draw(comparison, tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert page.count("<svg") == page.count("</svg>") == 4
    assert page.count("<circle") == 20
    assert "a&lt;b&gt;.csv" in page
    assert "<b>" not in page
    assert "<script" not in page
    assert comparison.reference.sha256 in page
    assert "7/10" in page
    numbers = [float(n) for n in re.findall(r'(?:cx|cy|x1|y1)="([-\d.]+)"', page)]
    assert all(0 <= n <= 560 for n in numbers)


def test_the_png_is_one(comparison, tmp_path):
    pytest.importorskip("matplotlib")
    draw(comparison, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_other_kinds_and_places_are_refused(comparison, tmp_path):
    with pytest.raises(UsageError, match="unknown kind of picture"):
        draw(comparison, tmp_path / "p.gif")
    with pytest.raises(UsageError, match="No such file"):
        draw(comparison, tmp_path / "none" / "p.html")

"""The comment in a real browser."""

import re
from pathlib import Path

import pytest
from rendering import chromium, page_of

from bot.comment import compose
from bot.record_board import board_of_record
from matrix.records import load

REPORT = Path(__file__).parents[1] / "data" / "github" / "original_report" / "run.json"
MEASURE = """<script>addEventListener("load", () => {
  const box = document.querySelector(".box").getBoundingClientRect()
  const wide = [...document.querySelectorAll("table")].filter(t => t.scrollWidth > t.clientWidth + 1).length
  const rows = [...document.querySelectorAll("tbody tr")].filter(r => r.getBoundingClientRect().height > 0).length
  document.title = `${Math.round(box.right)} ${innerWidth} ${wide} ${rows}`
})</script>"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [940, 500])  # headless Chromium goes no narrower than a phone on its side
def test_nothing_is_cut_off_at_desktop_and_phone_width(node, tmp_path, theme, width):
    text = compose(board_of_record(load(REPORT), base_url="https://ci.example/r"), ("en", "zh"))
    page = page_of(text, theme, opened=True).replace("style-src", "script-src 'unsafe-inline'; style-src")
    (tmp_path / "c.html").write_text(page.replace("</body>", MEASURE + "</body>"))
    dom = chromium(tmp_path / "c.html", "--dump-dom", "--virtual-time-budget=2000", width=width)
    right, inner, too_wide, rows = map(int, re.search(r"<title>(\d+) (\d+) (\d+) (\d+)</title>", dom).groups())
    assert right <= inner
    assert too_wide == 0
    assert rows == 8  # four in each language

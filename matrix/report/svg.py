"""Pictures of a run as SVG text: who used which card when, and which job hands what to whom.

Colours come from the page's style sheet, so light and dark both work; what a colour says is also written or dashed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup, escape

from matrix.records import BAD, JobRecord, RunRecord, Status
from matrix.report.text import duration, one_line

_WIDE, _NARROW = 1000, 340  # widths for windows and for phones
_LEFT, _BAR = 190, 26  # of the timeline: column of names, height of a bar with the space below it
_NODE_W, _NODE_H, _GAP_X, _GAP_Y = 170, 40, 60, 16
_MOST_ROWS, _MOST_NODES = 200, 300


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time in a row: of a job on a card, or of a job that waited."""

    row: str
    job: str
    begin: float  # seconds since the run began
    end: float
    kind: str  # passed, bad, wait, calm


def bars(run: RunRecord, now: float | None = None) -> list[Bar]:
    """Return what each card did, then what jobs without cards did, and how long these waited for their start.

    `now` (seconds since 1970): the run goes on until then.
    """
    start = _seconds(run.started)
    last = max(
        [_seconds(a.ended) for j in run.jobs for a in j.attempts if a.ended]
        + [_seconds(run.ended or run.started), now or 0.0]
    )
    found: list[Bar] = []
    for job in run.jobs:
        for a in job.attempts:
            begin, end = _seconds(a.started) - start, (_seconds(a.ended) if a.ended else last) - start
            status = a.status or job.status
            kind = "passed" if status is Status.PASSED else "bad" if status in BAD else "calm"
            rows = [f"{c.model} #{c.index} ({c.uuid[:12]})" for c in a.cards] or [f"no card: {job.name}"]
            found += [Bar(row, job.name, begin, max(begin, end), kind) for row in rows]
        if job.attempts and not job.attempts[0].cards and (waited := _seconds(job.attempts[0].started) - start) > 1:
            found.append(Bar(f"no card: {job.name}", f"{job.name} waits", 0.0, waited, "wait"))
        if job.status is Status.BLOCKED:
            found.append(
                Bar(f"blocked: {job.name}", "blocked by " + ", ".join(job.blocked_by), 0.0, last - start, "wait")
            )
    order = {"blocked": 2, "no card": 1}
    return sorted(found, key=lambda b: (order.get(b.row.partition(":")[0], 0), b.row, b.begin))


def waits(run: RunRecord) -> list[tuple[str, float]]:
    """Return how long each job waited for its hand-offs and cards, the longest first."""
    start = _seconds(run.started)
    found = []
    for job in run.jobs:
        if job.attempts:
            ready = max([start] + [_seconds(a.ended) for n in job.needs for a in _job(run, n).attempts[-1:] if a.ended])
            found.append((job.name, max(0.0, _seconds(job.attempts[0].started) - ready)))
    return sorted(found, key=lambda item: -item[1])


def both(draw: Callable[[int], Markup]) -> Markup:
    """Draw a picture for wide windows and one for phones: the style sheet shows the one that fits."""
    wide = draw(_WIDE)
    if not wide:
        return wide
    return Markup('<div><div class="for-wide">{}</div><div class="for-narrow">{}</div></div>').format(
        wide, draw(_NARROW)
    )


def timeline(run: RunRecord, now: float | None = None) -> Markup:
    """Draw the rows of `bars`; empty where nothing ran."""
    drawn = bars(run, now)
    return both(lambda width: _timeline(drawn, width))


def _timeline(drawn: Sequence[Bar], width: int) -> Markup:
    rows = list(dict.fromkeys(b.row for b in drawn))[:_MOST_ROWS]
    if not rows:
        return Markup("")
    left, above = (_LEFT, 0) if width == _WIDE else (0, 15)  # on a phone, names stand above their bars
    row_height = _BAR + above
    whole = max(1.0, *(b.end for b in drawn))
    scale = (width - left - 10) / whole
    height = row_height * len(rows) + 30
    out = [_open(width, height, f"Cards over time: {len(rows)} rows, {duration(whole)}")]
    for i in range(5):
        x = left + i / 4 * whole * scale
        out.append(f'<line class="grid" x1="{x:.0f}" y1="0" x2="{x:.0f}" y2="{height - 24}"/>')
        anchor = "end" if i == 4 else "middle" if i else "start"
        said = duration(i / 4 * whole)
        out.append(f'<text class="soft-text" x="{x:.0f}" y="{height - 8}" text-anchor="{anchor}">{said}</text>')
    for n, row in enumerate(rows):
        y = n * row_height + (12 if above else 17)
        out.append(f'<text x="0" y="{y}">{_cut(row, 48 if above else 28)}</text>')
    places = {row: n * row_height + above + 3 for n, row in enumerate(rows)}
    out += [_bar(b, left, places[b.row], scale) for b in drawn if b.row in places]
    return Markup("".join([*out, "</svg></div>"]))  # noqa: S704 -- every text in it was escaped


def _bar(b: Bar, left: int, y: int, scale: float) -> str:
    x, w = left + b.begin * scale, max(2.0, (b.end - b.begin) * scale)
    said = f"{b.job}: {b.kind if b.kind != 'wait' else 'waits'}, {duration(b.begin)} to {duration(b.end)}"
    label = ("✕ " if b.kind == "bad" else "") + b.job
    name = f'<text x="{x + 5:.1f}" y="{y + 14}">{_cut(label, int(w / 7))}</text>' if w > 40 else ""
    return (
        f'<g class="bar bar-{b.kind}"><title>{escape(one_line(said))}</title>'
        f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{_BAR - 6}" rx="3"/>{name}</g>'
    )


def graph(run: RunRecord) -> Markup:
    """Draw jobs that are joined by hand-offs, left to right; empty where none are."""
    joined = {j.name for j in run.jobs if j.needs} | {n for j in run.jobs for n in j.needs}
    jobs = [j for j in run.jobs if j.name in joined][:_MOST_NODES]
    if not jobs:
        return Markup("")
    depth: dict[str, int] = {}
    for _ in jobs:  # a chain is at most as long as there are jobs
        for j in jobs:
            depth[j.name] = max([0] + [depth.get(n, 0) + 1 for n in j.needs])
    columns: dict[int, list[JobRecord]] = defaultdict(list)
    for j in jobs:
        columns[depth[j.name]].append(j)
    at = {
        j.name: (col * (_NODE_W + _GAP_X) + 4, row * (_NODE_H + _GAP_Y) + 4)
        for col, some in columns.items()
        for row, j in enumerate(some)
    }
    width = (max(columns) + 1) * (_NODE_W + _GAP_X) - _GAP_X + 8
    height = max(len(c) for c in columns.values()) * (_NODE_H + _GAP_Y) + 8
    out = [_open(width, height, f"Hand-offs between {len(jobs)} jobs", fixed=True)]
    for j in jobs:
        for n in j.needs:
            if n in at:
                (x1, y1), (x2, y2) = at[n], at[j.name]
                x1, y1, y2 = x1 + _NODE_W, y1 + _NODE_H // 2, y2 + _NODE_H // 2
                mid = (x1 + x2) / 2
                out.append(f'<path class="edge" d="M{x1} {y1} C{mid} {y1} {mid} {y2} {x2} {y2}"/>')
                out.append(f'<path class="edge" d="M{x2 - 6} {y2 - 4} L{x2} {y2} L{x2 - 6} {y2 + 4}"/>')
    for j in jobs:
        x, y = at[j.name]
        kind = {Status.PASSED: "passed", Status.BLOCKED: "warn"}.get(j.status, "bad" if j.status in BAD else "calm")
        out.append(f"<g><title>{escape(one_line(j.name))}: {j.status}</title>")
        out.append(f'<rect class="node node-{kind}" x="{x}" y="{y}" width="{_NODE_W}" height="{_NODE_H}" rx="6"/>')
        out.append(f'<text x="{x + 8}" y="{y + 17}">{_cut(j.name, 24)}</text>')
        out.append(f'<text class="soft-text" x="{x + 8}" y="{y + 32}">{j.status}</text></g>')
    return Markup("".join([*out, "</svg></div>"]))  # noqa: S704 -- every text in it was escaped


def lines(
    series: Iterable[tuple[str, list[tuple[float, float]]]], title: str, *, marks: Iterable[float] = ()
) -> Markup:
    """Draw up to two lines over steps, the second dashed; `marks` are steps with a dot on the first."""
    drawn = [(name, points) for name, points in series if points][:2]
    wanted = frozenset(marks)
    return both(lambda width: _lines(drawn, title, wanted, width))


def _lines(
    drawn: Sequence[tuple[str, list[tuple[float, float]]]], title: str, marks: frozenset[float], whole: int
) -> Markup:
    points = [p for _, some in drawn for p in some]
    if not points:
        return Markup("")
    x0, x1 = min(p[0] for p in points), max(p[0] for p in points)
    marked = ticks([p[1] for p in points])
    y0, y1 = marked[0], marked[-1]
    narrow = whole == _NARROW
    left, top, height = (58 if narrow else 70), (24 * len(drawn) if narrow else 24), 220
    width = whole - left - 10

    def place(p: tuple[float, float]) -> tuple[float, float]:
        return left + (p[0] - x0) / ((x1 - x0) or 1) * width, top + height - (p[1] - y0) / ((y1 - y0) or 1) * height

    out = [_open(whole, top + height + 26, title)]
    for tick in marked:
        y = place((x0, tick))[1]
        out.append(f'<line class="grid" x1="{left}" y1="{y:.0f}" x2="{left + width}" y2="{y:.0f}"/>')
        out.append(f'<text class="soft-text" x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{tick:.6g}</text>')
    middle = left + width / 2
    for x, said, anchor in ((left, f"{x0:g}", "start"), (middle, "step", "middle"), (left + width, f"{x1:g}", "end")):
        out.append(f'<text class="soft-text" x="{x:.0f}" y="{top + height + 18}" text-anchor="{anchor}">{said}</text>')
    for n, (name, some) in enumerate(drawn, 1):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, some))
        out.append(f'<polyline class="line-{n}" points="{path}"><title>{escape(name)}</title></polyline>')
        x, y = (left, 10 + (n - 1) * 20) if narrow else (left + (n - 1) * 300, 10)
        out.append(f'<line class="line-{n}" x1="{x}" y1="{y}" x2="{x + 30}" y2="{y}"/>')
        out.append(f'<text x="{x + 36}" y="{y + 4}">{_cut(name, 34)}</text>')
    for x, y in (place(p) for p in drawn[0][1] if p[0] in marks):
        out.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>the first difference</title></circle>')
    return Markup("".join([*out, "</svg></div>"]))  # noqa: S704 -- every text in it was escaped


def ticks(values: Sequence[float]) -> list[float]:
    """Return four to seven round numbers around some values.

    >>> ticks([0.1, 10.0]), ticks([0, 3]), ticks([7])
    ([0.0, 2.5, 5.0, 7.5, 10.0], [0.0, 1.0, 2.0, 3.0], [7.0, 8.0])
    """
    low, high = min(values), max(values)
    rough = (high - low) / 4
    if not (math.isfinite(rough) and rough > 0):
        return [float(low), float(low) + 1.0]
    power = 10.0 ** math.floor(math.log10(rough))
    whole = all(v == int(v) for v in values)
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * 0.999)
    step = max(1.0, math.ceil(step)) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, last + 1)]


def _open(width: int, height: int, title: str, *, fixed: bool = False) -> str:
    said = escape(title)
    size = f'width="{width}" height="{height}"' if fixed else 'width="100%"'
    return (
        f'<div class="chart" role="group" tabindex="0" aria-label="{said}"><svg role="img" aria-label="{said}" '
        f'{size} viewBox="0 0 {width} {height}"><title>{said}</title>'
    )


def _job(run: RunRecord, name: str) -> JobRecord:
    return next((j for j in run.jobs if j.name == name), JobRecord(name=name, suite=""))


def _cut(text: str, most: int) -> str:
    return str(escape(one_line(text, max(most, 2))))


def _seconds(iso: str | None) -> float:
    try:
        return datetime.fromisoformat(iso or "").timestamp()
    except ValueError:
        return 0.0

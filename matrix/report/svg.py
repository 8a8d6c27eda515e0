"""Pictures of a run as SVG text: who used which card when, and which job hands what to whom.

Colours come from the page's style sheet, so light and dark both work; what a colour says is also written or dashed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup, escape

from matrix.records import BAD, JobRecord, RunRecord, Status
from matrix.report.text import duration, one_line

_LEFT, _ROW, _WIDTH = 190, 26, 1000  # of the timeline: column of names, height of a row, whole width
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


def timeline(run: RunRecord, now: float | None = None) -> Markup:
    """Draw the rows of `bars`; empty where nothing ran."""
    drawn = bars(run, now)
    rows = list(dict.fromkeys(b.row for b in drawn))[:_MOST_ROWS]
    if not rows:
        return Markup("")
    whole = max(1.0, *(b.end for b in drawn))
    scale = (_WIDTH - _LEFT - 10) / whole
    height = _ROW * len(rows) + 30
    out = [_open(_WIDTH, height, f"Cards over time: {len(rows)} rows, {duration(whole)}")]
    for i in range(5):
        x = _LEFT + i / 4 * whole * scale
        out.append(f'<line class="grid" x1="{x:.0f}" y1="0" x2="{x:.0f}" y2="{height - 24}"/>')
        anchor = "end" if i == 4 else "middle" if i else "start"
        said = duration(i / 4 * whole)
        out.append(f'<text class="soft-text" x="{x:.0f}" y="{height - 8}" text-anchor="{anchor}">{said}</text>')
    for n, row in enumerate(rows):
        out.append(f'<text x="0" y="{n * _ROW + 17}">{_cut(row, 28)}</text>')
    for b in drawn:
        if b.row not in rows:
            continue
        x, y, w = _LEFT + b.begin * scale, rows.index(b.row) * _ROW + 3, max(2.0, (b.end - b.begin) * scale)
        said = f"{b.job}: {b.kind if b.kind != 'wait' else 'waits'}, {duration(b.begin)} to {duration(b.end)}"
        out.append(f'<g class="bar bar-{b.kind}"><title>{escape(one_line(said))}</title>')
        out.append(f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{_ROW - 6}" rx="3"/>')
        label = ("✕ " if b.kind == "bad" else "") + b.job
        if w > 40:
            out.append(f'<text x="{x + 5:.1f}" y="{y + 14}">{_cut(label, int(w / 7))}</text>')
        out.append("</g>")
    return Markup("".join([*out, "</svg></div>"]))  # noqa: S704 -- every text in it was escaped


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
    out = [_open(width, height, f"Hand-offs between {len(jobs)} jobs")]
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
    points = [p for _, some in drawn for p in some]
    if not points:
        return Markup("")
    x0, x1 = min(p[0] for p in points), max(p[0] for p in points)
    y0, y1 = min(p[1] for p in points), max(p[1] for p in points)
    if all(p[1] == int(p[1]) for p in points):
        y1 = y0 + -(-(y1 - y0) // 4) * 4  # whole numbers have whole ticks
    left, top, width, height = 70, 24, 860, 220

    def place(p: tuple[float, float]) -> tuple[float, float]:
        return left + (p[0] - x0) / ((x1 - x0) or 1) * width, top + height - (p[1] - y0) / ((y1 - y0) or 1) * height

    out = [_open(_WIDTH, height + 60, title)]
    for i in range(5):
        y = top + i / 4 * height
        out.append(f'<line class="grid" x1="{left}" y1="{y:.0f}" x2="{left + width}" y2="{y:.0f}"/>')
        said = f"{y1 - i / 4 * (y1 - y0):.6g}"
        out.append(f'<text class="soft-text" x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{said}</text>')
    for x, anchor in ((x0, "start"), (x1, "end")):
        at = place((x, y0))[0]
        out.append(f'<text class="soft-text" x="{at:.0f}" y="{top + height + 18}" text-anchor="{anchor}">{x:g}</text>')
    for n, (name, some) in enumerate(drawn, 1):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, some))
        out.append(f'<polyline class="line-{n}" points="{path}"><title>{escape(name)}</title></polyline>')
        out.append(
            f'<line class="line-{n}" x1="{left + (n - 1) * 300}" y1="10" x2="{left + (n - 1) * 300 + 30}" y2="10"/>'
        )
        out.append(f'<text x="{left + (n - 1) * 300 + 36}" y="14">{_cut(name, 34)}</text>')
    wanted = set(marks)
    for p in drawn[0][1]:
        if p[0] in wanted:
            x, y = place(p)
            out.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>step {p[0]:g}</title></circle>')
    return Markup("".join([*out, "</svg></div>"]))  # noqa: S704 -- every text in it was escaped


def _open(width: int, height: int, title: str) -> str:
    said = escape(title)
    return (
        f'<div class="chart" role="group" tabindex="0" aria-label="{said}"><svg role="img" aria-label="{said}" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"><title>{said}</title>'
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

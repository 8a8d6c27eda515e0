"""Loss curves of two records and their difference in ulps, as HTML (inline SVG, no script) or PNG (matplotlib)."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsv4.align.compare import Comparison, float32_ulps
from dsv4.align.record import LOSSES
from dsv4.errors import UsageError


@dataclass(frozen=True)
class Curves:
    """One loss of both runs over the micro-batches that both have. `x` is in steps."""

    name: str
    x: tuple[float, ...]
    record: tuple[float, ...]
    reference: tuple[float, ...]
    ulps: tuple[float, ...]


def curves(c: Comparison, name: str) -> Curves | None:
    """Collect one loss; None if no micro-batch has it on both sides."""
    ours = c.record.by_key()
    micros = 1 + max((micro for _, micro in ours), default=0)
    x: list[float] = []
    pairs: list[tuple[float, float]] = []
    for (step, micro), row in sorted(c.reference.by_key().items()):
        a, b = ours[step, micro].loss(name) if (step, micro) in ours else None, row.loss(name)
        if a is not None and b is not None and math.isfinite(a) and math.isfinite(b):
            x.append(step + micro / micros)
            pairs.append((a, b))
    if not pairs:
        return None
    record, reference = zip(*pairs, strict=True)
    return Curves(name, tuple(x), record, reference, tuple(float32_ulps(a, b) for a, b in pairs))


def draw(c: Comparison, path: Path) -> None:
    """Write the picture; the suffix of `path` chooses HTML or PNG."""
    drawn = [found for name in LOSSES if (found := curves(c, name))]
    if not drawn:
        raise UsageError(f"{c.record.path} and {c.reference.path} share no micro-batch", "nothing can be drawn")
    try:
        if path.suffix == ".html":
            path.write_text(as_html(c, drawn), encoding="utf-8")
        elif path.suffix == ".png":
            _write_png(drawn, path)
        else:
            raise UsageError(f"{path}: unknown kind of picture", "write a name that ends in .html or .png")
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}", "name a file that can be written") from None


# -- PNG -------------------------------------------------------------------------------------------------------------


def _write_png(drawn: Sequence[Curves], path: Path) -> None:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise UsageError("PNG pictures need matplotlib", "pip install matplotlib, or write .html") from None
    figure = Figure(figsize=(6 * len(drawn), 6), layout="constrained")
    axes = figure.subplots(2, len(drawn), sharex=True, squeeze=False)
    for column, curve in enumerate(drawn):
        top, below = axes[0][column], axes[1][column]
        top.plot(curve.x, curve.reference, color="#b8c4d6", linewidth=4, label="reference")
        top.plot(curve.x, curve.record, color="#1d4ed8", linewidth=1, label="record")
        top.set_title(f"{curve.name} loss")
        top.legend()
        below.plot(curve.x, curve.ulps, ".", color="#b91c1c", markersize=3)
        below.set_yscale("symlog", linthresh=1)
        below.set_ylim(bottom=-0.1)
        below.set_ylabel("float32 ulps apart")
        below.set_xlabel("step")
    figure.savefig(path, dpi=120)


# -- HTML ------------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 560, 220, 64, 28, 12

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Loss alignment</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1200px; padding: 0 1rem; color: #1f2937; }}
.row {{ display: flex; flex-wrap: wrap; gap: 1.5rem; }}
figure {{ margin: 0; }} figcaption {{ font-weight: 600; }}
svg {{ max-width: 100%; height: auto; }} text {{ font: 11px system-ui, sans-serif; fill: #4b5563; }}
table {{ border-collapse: collapse; margin: 1rem 0; }} td, th {{ padding: .2rem .8rem .2rem 0; text-align: left; }}
code {{ overflow-wrap: anywhere; }} .a {{ color: #1d4ed8; }} .b {{ color: #8fa3bf; }}
</style></head><body><h1>Loss alignment</h1>
<table><tr><th>loss</th><th>equal</th><th>first difference</th><th>largest distance</th></tr>{rows}</table>
<p><span class="a">━</span> record <code>{record}</code><br>
<span class="b">━</span> reference <code>{reference}</code></p>
{figures}</body></html>
"""


def as_html(c: Comparison, drawn: Sequence[Curves]) -> str:
    """Build the page. Every text from outside is escaped."""
    rows = "".join(
        f"<tr><td>{loss.name}</td><td>{loss.matches}/{loss.total}</td><td>{html.escape(str(loss.first))}</td>"
        f"<td>{loss.max_ulps:g} ulps of float32</td></tr>"
        for loss in c.losses
    )
    sides = [html.escape(f"{r.path} sha256 {r.sha256} {r.origin or ''}") for r in (c.record, c.reference)]
    figures = "".join(f'<div class="row">{_loss_figure(curve)}{_ulps_figure(curve)}</div>' for curve in drawn)
    return _PAGE.format(rows=rows, record=sides[0], reference=sides[1], figures=figures)


def _loss_figure(curve: Curves) -> str:
    values = (*curve.record, *curve.reference)
    low, high = min(values), max(values)
    frame = _Frame(curve.x, low, high)
    ticks = [(v, f"{v:.3f}") for v in (low, (low + high) / 2, high)]
    lines = frame.line(curve.reference, "#b8c4d6", 4) + frame.line(curve.record, "#1d4ed8", 1.2)
    return frame.figure(f"{curve.name} loss", ticks, lines)


def _ulps_figure(curve: Curves) -> str:
    """Distances on a logarithmic scale that has a zero: log10(1 + ulps)."""
    scaled = [math.log10(1 + u) for u in curve.ulps]
    frame = _Frame(curve.x, 0.0, max(1.0, *scaled))
    ticks = [(0.0, "0"), *((math.log10(1 + 10**k), f"{10**k:g}") for k in range(math.ceil(max(1.0, *scaled))))]
    dots = "".join(
        f'<circle cx="{frame.px(x):.1f}" cy="{frame.py(y):.1f}" r="1.8" fill="#b91c1c">'
        f"<title>step {math.floor(x + 1e-9)}: {u:g} ulps</title></circle>"
        for x, y, u in zip(curve.x, scaled, curve.ulps, strict=True)
    )
    return frame.figure(f"{curve.name}: float32 ulps apart, per micro-batch", ticks, dots)


class _Frame:
    """Maps values to pixels of one figure and draws its axes."""

    def __init__(self, x: Sequence[float], low: float, high: float) -> None:
        self._x, self._low, self._high = x, low, high if high > low else low + 1

    def px(self, x: float) -> float:
        """Horizontal pixel of a step."""
        first, last = self._x[0], self._x[-1]
        return LEFT + (x - first) / ((last - first) or 1) * (WIDTH - LEFT - 10)

    def py(self, y: float) -> float:
        """Vertical pixel of a value."""
        return HEIGHT - BOTTOM - (y - self._low) / (self._high - self._low) * (HEIGHT - BOTTOM - TOP)

    def line(self, values: Sequence[float], colour: str, width: float) -> str:
        """One curve."""
        points = " ".join(f"{self.px(x):.1f},{self.py(y):.1f}" for x, y in zip(self._x, values, strict=True))
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>'

    def figure(self, title: str, ticks: Sequence[tuple[float, str]], content: str) -> str:
        """Title, axes, tick labels and content."""
        grid = "".join(
            f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{self.py(v):.1f}" y2="{self.py(v):.1f}" stroke="#e5e7eb"/>'
            f'<text x="{LEFT - 6}" y="{self.py(v) + 4:.1f}" text-anchor="end">{label}</text>'
            for v, label in ticks
        )
        ends = {math.floor(self._x[0]), math.floor(self._x[-1])}
        steps = "".join(
            f'<text x="{self.px(step):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{step}</text>'
            for step in sorted(ends)
        )
        return (
            f"<figure><figcaption>{title}</figcaption>"
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="{title}">'
            f"{grid}{steps}{content}</svg></figure>"
        )

"""Plots as SVG text: lines over time, bars of verdicts, bars of values. Pure, and self-contained.

Colours are classes that the page's style sheet fills, so that plots follow light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Final

from barnabas.pipeline.jobs.time_arguments import time_text

from .report import Bars, Chart, Lines, Point, Timeline

COLOURS: Final = 8
"""So many classes ``c0`` to ``c7`` are there for lines; more lines share them."""
_WIDTH: Final = 920
_LEFT: Final = 72
_RIGHT: Final = 16
_TOP: Final = 12
_HEIGHT: Final = 260
_AXIS: Final = 28
_NAMES: Final = 220
_ROW: Final = 22
_TICKS: Final = 5
_DOTS_MAX: Final = 2_000
"""With more points there are lines only: a dot shows its value when pointed at."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STEPS_MS: Final = tuple(
    seconds * 1000
    for seconds in (
        1, 5, 15, 30, 60, 300, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 604_800,
        2_592_000,
    )
)  # fmt: skip
_DAY_MS: Final = 86_400_000
_MINUTE_MS: Final = 60_000


def drawn(chart: Chart) -> str:
    """The plot of any chart."""
    if isinstance(chart, Lines):
        return line_chart(chart)
    return timeline(chart) if isinstance(chart, Timeline) else bar_chart(chart)


def line_chart(chart: Lines) -> str:
    """Lines from zero up, over one axis of time; a gap where a value is None."""
    points = [point for series in chart.series.values() for point in series]
    values = [point.value for point in points if point.value is not None]
    if not values:
        return _empty()
    start, end = min(p.time_ms for p in points), max(p.time_ms for p in points)
    step = _step(max(values))
    top = step * max(1, math.ceil(max(values) / step))
    across = _Scale(start, max(end, start + 1), _LEFT, _WIDTH - _RIGHT)
    down = _Scale(0, top, _TOP + _HEIGHT, _TOP)
    parts = [_value_axis(step, down), _time_axis(across, _TOP, _TOP + _HEIGHT)]
    for number, (name, series) in enumerate(chart.series.items()):
        colour = f"c{number % COLOURS}"
        path = _path(series, across, down)
        parts.append(f'<path class="line {colour}" d="{path}"><title>{escape(name)}</title></path>')
        parts += [
            f'<circle class="dot {colour}" cx="{across(p.time_ms):.1f}" cy="{down(p.value):.1f}"'
            f' r="2"><title>{escape(name)}: {number_text(p.value)} {escape(chart.unit)} at '
            f"{time_text(p.time_ms)}</title></circle>"
            for p in series
            if p.value is not None and len(points) <= _DOTS_MAX
        ]
    return _svg(_TOP + _HEIGHT + _AXIS, parts, f"{chart.title} in {chart.unit}")


def timeline(chart: Timeline) -> str:
    """A row a name; spans coloured by their label, ``v-LABEL`` in the style sheet."""
    spans = [span for row in chart.rows.values() for span in row]
    if not spans:
        return _empty()
    start, end = min(s.start_ms for s in spans), max(s.end_ms for s in spans)
    across = _Scale(start, max(end, start + 1), _NAMES, _WIDTH - _RIGHT)
    bottom = _TOP + _ROW * len(chart.rows)
    parts = [_time_axis(across, _TOP, bottom)]
    for number, (name, row) in enumerate(chart.rows.items()):
        top = _TOP + _ROW * number
        parts.append(_name(name, top + _ROW / 2))
        for span in row:
            left, right = across(span.start_ms), across(span.end_ms)
            label = f"{name}: {span.label}, {time_text(span.start_ms)} to {time_text(span.end_ms)}"
            parts.append(
                f'<rect class="v-{escape(span.label)}" x="{left:.1f}" y="{top + 3}" '
                f'width="{max(1.0, right - left):.1f}" height="{_ROW - 6}">'
                f"<title>{escape(label)}</title></rect>"
            )
    return _svg(bottom + _AXIS, parts, chart.title)


def bar_chart(chart: Bars) -> str:
    """A row a name, its value written behind its bar."""
    if not chart.values:
        return _empty()
    top = max(chart.values.values()) or 1
    across = _Scale(0, top, _NAMES, _WIDTH - 110)
    parts = []
    for number, (name, value) in enumerate(chart.values.items()):
        at = _TOP + _ROW * number
        parts.append(_name(name, at + _ROW / 2))
        parts.append(
            f'<rect class="c0 bar" x="{_NAMES}" y="{at + 3}" '
            f'width="{max(1.0, across(value) - _NAMES):.1f}" height="{_ROW - 6}"></rect>'
            f'<text class="value" x="{across(value) + 6:.1f}" y="{at + _ROW / 2 + 4}">'
            f"{number_text(value)} {escape(chart.unit)}</text>"
        )
    return _svg(_TOP + _ROW * len(chart.values) + 8, parts, chart.title)


def number_text(value: float | None) -> str:
    """A number short enough for an axis: 1.5k, 2M; whole below a thousand."""
    if value is None:
        return "-"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


class _Scale:
    """From values to places on the drawing."""

    def __init__(self, low: float, high: float, first: float, last: float) -> None:
        assert high > low, (low, high)
        self.low, self.high = low, high
        self._first = first
        self._slope: float = (last - first) / (high - low)

    def __call__(self, value: float) -> float:
        """Where ``value`` is drawn."""
        coordinate: float = self._first + (value - self.low) * self._slope
        return coordinate


def _path(series: Sequence[Point], across: _Scale, down: _Scale) -> str:
    steps, is_drawing = [], False
    for point in series:
        if point.value is None:
            is_drawing = False
            continue
        letter = "L" if is_drawing else "M"
        steps.append(f"{letter}{across(point.time_ms):.1f},{down(point.value):.1f}")
        is_drawing = True
    return "".join(steps)


def _step(value: float) -> float:
    """A round distance of ticks, of which few reach ``value``."""
    if value <= 1:
        return 1.0
    size: float = 10.0 ** math.floor(math.log10(value / _TICKS))
    return next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor * _TICKS >= value)


def _value_axis(step: float, down: _Scale) -> str:
    parts = []
    for tick in range(round(down.high / step) + 1):
        at = down(step * tick)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text class="tick" text-anchor="end" x="{_LEFT - 8}" y="{at + 4:.1f}">'
            f"{number_text(step * tick)}</text>"
        )
    return "".join(parts)


def _time_axis(across: _Scale, top: float, bottom: float) -> str:
    span = across.high - across.low
    step = next((step_ms for step_ms in _STEPS_MS if span / step_ms <= _TICKS + 1), None)
    if step is None:
        step = math.ceil(span / _TICKS / _DAY_MS) * _DAY_MS
    parts = []
    tick = math.ceil(across.low / step) * step
    while tick <= across.high:
        at = across(tick)
        parts.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{bottom}"/>'
            f'<text class="tick" text-anchor="middle" x="{at:.1f}" y="{bottom + 18}">'
            f"{_tick_text(int(tick), step)}</text>"
        )
        tick += step
    return "".join(parts)


def _tick_text(at_ms: int, step_ms: float) -> str:
    at = _EPOCH + timedelta(milliseconds=at_ms)
    if step_ms >= _DAY_MS:
        return f"{at:%d %b}"
    if at_ms % _DAY_MS == 0:
        return f"{at:%d %b %H:%M}"
    return f"{at:%H:%M:%S}" if step_ms < _MINUTE_MS else f"{at:%H:%M}"


def _name(text: str, middle: float) -> str:
    most = 32
    shown = text if len(text) <= most else f"{text[: most - 1]}…"
    return (
        f'<text class="name" text-anchor="end" x="{_NAMES - 8}" y="{middle + 4}">'
        f"{escape(shown)}<title>{escape(text)}</title></text>"
    )


def _svg(height: float, parts: Sequence[str], label: str) -> str:
    body = "".join(parts)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{body}</svg>'
    )


def _empty() -> str:
    return '<p class="empty">Nothing to draw.</p>'

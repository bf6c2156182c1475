"""A drawing of what was measured in an endurance run: a panel for each quantity, SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

WIDTH: Final = 900
PANEL: Final = 150
LEFT, RIGHT, TOP, BOTTOM = 70, 110, 24, 24
COLOURS: Final = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
_STYLE: Final = 'font-family="sans-serif" font-size="12"'


def drawing(samples: Mapping[str, str]) -> str:
    """The whole picture. ``minutes`` are the moments; other series are named ``panel, line``."""
    series = {name: [float(figure) for figure in text.split()] for name, text in samples.items()}
    moments = series.pop("minutes")
    panels = [
        (title, {name.partition(", ")[2]: series[name] for name in names})
        for title, names in groupby(series, key=lambda name: name.partition(", ")[0])
    ]
    height = PANEL * len(panels)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" {_STYLE}>']
    parts.append(f'<rect width="{WIDTH}" height="{height}" fill="white"/>')
    for index, (title, lines) in enumerate(panels):
        parts += _panel(title, moments, lines, index * PANEL)
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    title: str, moments: Sequence[float], lines: Mapping[str, Sequence[float]], above: int
) -> list[str]:
    most = max((value for line in lines.values() for value in line), default=0.0) or 1.0
    last = max(moments, default=0.0) or 1.0
    right, floor, ceiling = WIDTH - RIGHT, above + PANEL - BOTTOM, above + TOP
    parts = [
        f'<text x="{LEFT}" y="{ceiling - 8}">{title}</text>',
        f'<path d="M{LEFT} {ceiling}V{floor}H{right}" fill="none" stroke="#999"/>',
        f'<text x="{LEFT - 6}" y="{ceiling + 5}" text-anchor="end">{most:g}</text>',
        f'<text x="{LEFT - 6}" y="{floor}" text-anchor="end">0</text>',
        f'<text x="{right}" y="{floor + 16}" text-anchor="end">{last:.0f} min</text>',
    ]
    for index, (name, values) in enumerate(lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        points = " ".join(
            f"{LEFT + moment / last * (right - LEFT):.1f},"
            f"{floor - value / most * (floor - ceiling):.1f}"
            for moment, value in zip(moments, values, strict=True)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        label = ceiling + 12 + 16 * index
        parts.append(f'<text x="{right + 8}" y="{label}" fill="{colour}">{name}</text>')
    return parts

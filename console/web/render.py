"""Templates and the words in which numbers, sizes and times are shown.

Source: docs/spec/console.md §4 (numbers grouped, exact in ``title``; kB and KiB named).
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from .query import url_of
from .zones import Zone, iso_text

HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"
UNKNOWN: Final = Markup('<span class="unknown" title="not known">–</span>')
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEPS: Final = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


@cache
def environment() -> jinja2.Environment:
    """All templates; whatever is put into one is escaped."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(number=number, size=size, span=span, seconds=seconds, rate=rate)
    made.globals.update(url=url, asset=asset_url)
    return made


def number(value: int | None) -> str | Markup:
    """Digits in groups of three."""
    return UNKNOWN if value is None else f"{value:,}"


def size(value: int | None) -> str | Markup:
    """Bytes in binary units, the exact number as title."""
    if value is None:
        return UNKNOWN
    amount, unit = float(value), 0
    while amount >= 1024 and unit < len(_BINARY) - 1:
        amount, unit = amount / 1024, unit + 1
    text = f"{amount:.1f} {_BINARY[unit]}" if unit else f"{value} B"
    return Markup('<span title="{:,} bytes">{}</span>').format(value, text)


def span(value_s: float | None) -> str:
    """A length of time in its two greatest units, from seconds."""
    if value_s is None:
        return ""
    if value_s < 1:
        return f"{value_s * 1000:.0f} ms"
    if value_s < 60:
        return f"{value_s:.0f} s"
    for unit_s, unit, small_s, small in _STEPS:
        if value_s >= unit_s:
            whole, rest = divmod(int(value_s), unit_s)
            return f"{whole} {unit}" + (f" {rest // small_s} {small}" if rest >= small_s else "")
    raise AssertionError(value_s)


def seconds(value_s: float | None) -> str | Markup:
    """A lag in time, the exact number as title; nought is no lag."""
    if value_s is None:
        return UNKNOWN
    text = "0" if value_s == 0 else span(value_s)
    return Markup('<span title="{:.3f} s">{}</span>').format(value_s, text)


def rate(value: float | None) -> str | Markup:
    """So many in a second."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def url(path: str, **parameters: Any) -> str:
    """A link with its parameters."""
    return url_of(path, parameters)


def times(zone: Zone, now_ms: int) -> dict[str, Any]:
    """What templates say times with: a point, how long that is gone, the time of the day."""

    def when(at_ms: int | None) -> Markup:
        if at_ms is None:
            return UNKNOWN
        return Markup('<time datetime="{}" title="{}">{}</time>').format(
            iso_text(at_ms), ago_text(at_ms), zone.text(at_ms)
        )

    def ago(at_ms: int | None) -> Markup:
        if at_ms is None:
            return UNKNOWN
        return Markup('<time datetime="{}" title="{}">{}</time>').format(
            iso_text(at_ms), zone.text(at_ms), ago_text(at_ms)
        )

    def ago_text(at_ms: int) -> str:
        if at_ms > now_ms + 1000:
            return f"in {span((at_ms - now_ms) / 1000)}"
        return f"{span(max(0, now_ms - at_ms) // 1000)} ago" if now_ms - at_ms >= 1000 else "now"

    def clock(at_ms: int) -> str:
        return zone.text(at_ms)[11:19]

    return {"when": when, "ago": ago, "clock": clock}


@cache
def assets() -> dict[str, Path]:
    """Each static file by the name under which it is served: with a part of its hash in it."""
    found = {}
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
            name = path.relative_to(STATIC).as_posix().replace("/", "-")
            found[f"{digest}-{name}"] = path
    return found


@cache
def asset_url(name: str) -> str:
    """The address of a static file; it changes with the content, so it may be kept for ever."""
    path = STATIC / name
    return next(f"/static/{served}" for served, found in assets().items() if found == path)

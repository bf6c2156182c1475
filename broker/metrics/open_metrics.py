"""OpenMetrics 1.0 out of Prometheus' text: for collectors that ask for it by ``Accept``.

What differs: a counter's family has no ``_total``, a family says its unit, an ``_info`` is a kind
of its own, and the last line says that it is the last. A counter whose name does not end in
``_total`` cannot be told and is left out. Source: docs/spec/console.md §6; the OpenMetrics
specification 1.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_MEDIA_TYPE: Final = "application/openmetrics-text"
_TOTAL: Final = "_total"
_INFO: Final = "_info"
_UNITS: Final = ("seconds", "bytes")


def is_wanted(accept: str) -> bool:
    """Whether a header ``Accept`` names OpenMetrics."""
    return any(part.partition(";")[0].strip() == _MEDIA_TYPE for part in accept.lower().split(","))


def open_metrics(lines: Iterator[str]) -> Iterator[str]:
    """The lines of one scrape in this format; pauses stay where they are."""
    meaning, is_told = "", True
    for line in lines:
        if line.startswith("# HELP "):
            meaning = line.split(" ", 3)[3]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            is_told = kind != "counter" or name.endswith(_TOTAL)
            if is_told:
                yield from _head(name, kind, meaning)
        elif is_told:
            yield line
    yield "# EOF\n"


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    if kind == "counter":
        name = name.removesuffix(_TOTAL)
    elif kind == "gauge" and name.endswith(_INFO):
        name, kind = name.removesuffix(_INFO), "info"
    yield f"# TYPE {name} {kind}\n"
    unit = name.rpartition("_")[2]
    if unit in _UNITS:
        yield f"# UNIT {name} {unit}\n"
    yield f"# HELP {name} {meaning}"

"""OpenMetrics 1.0 out of Prometheus' text: for collectors that ask for it by ``Accept``.

What differs: a counter's family has no ``_total``, a family says its unit, an ``_info`` is a kind
of its own, counters and histograms say since when they count, and the last line says that it is
the last. A counter whose name does not end in ``_total`` cannot be told and is left out.
Source: docs/spec/console.md §6; the OpenMetrics specification 1.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_MEDIA_TYPE: Final = "application/openmetrics-text"
_TOTAL: Final = "_total"
_INFO: Final = "_info"
_UNITS: Final = ("seconds", "bytes")
NOT_SINCE_THE_START: Final = frozenset(
    {"barnabas_topic_end_offset_total", "barnabas_group_commits_total"}
)
"""Counters that are older than the process, or younger: nothing is said of when they began."""


def is_wanted(accept: str) -> bool:
    """Whether a header ``Accept`` names OpenMetrics."""
    return any(part.partition(";")[0].strip() == _MEDIA_TYPE for part in accept.lower().split(","))


def open_metrics(lines: Iterator[str], started_s: float | None = None) -> Iterator[str]:
    """The lines of one scrape in this format; pauses stay where they are.

    ``started_s`` is when this process began to count, in seconds since 1970; None: not told.
    """
    meaning, is_told, counted = "", True, ""
    created = "" if started_s is None else f"{started_s:.3f}"
    for line in lines:
        if line.startswith("# HELP "):
            meaning = line.split(" ", 3)[3]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            is_told = kind != "counter" or name.endswith(_TOTAL)
            counted = _counted_sample(name, kind)
            if is_told:
                yield from _head(name, kind, meaning)
        elif is_told:
            yield line
            if created and counted and line.startswith(counted):
                yield _created(line, counted, created)
    yield "# EOF\n"


def _counted_sample(name: str, kind: str) -> str:
    """The sample behind which the time stands since when it is counted; empty where none does."""
    if name in NOT_SINCE_THE_START:
        return ""
    return {"counter": name, "histogram": f"{name}_count"}.get(kind, "")


def _created(line: str, sample: str, created: str) -> str:
    """``x_total{a="b"} 7`` gives ``x_created{a="b"} 1795000000.123``."""
    labels = line[len(sample) : line.rindex(" ")]
    return f"{sample.rpartition('_')[0]}_created{labels} {created}\n"


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

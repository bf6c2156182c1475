"""What every process tells of itself, node or web console: CPU time, memory, files, its release.

Apart from what nodes tell, so that a console imports nothing of theirs. Source: docs/metrics.md.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

from .exposition import single

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_START_FIELD: Final = 19
"""Of /proc/self/stat, behind the name in brackets: ticks from the boot to the start."""


def _start_time() -> float:
    """When this process started, in seconds since 1970."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[_START_FIELD]) / os.sysconf(
        "SC_CLK_TCK"
    )
    return time.time() - age_s


STARTED_S: Final = _start_time()
"""When this process began, in seconds since 1970."""

Row = tuple[str, Literal["counter", "gauge"], str, int | float]


def process_families() -> Iterator[str]:
    """The process, under the names that every exporter uses."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are enough
    yield from rows(
        "process",
        ("cpu_seconds_total", "counter", "CPU time.", usage.ru_utime + usage.ru_stime),
        ("start_time_seconds", "gauge", "When it started, seconds since 1970.", STARTED_S),
        ("resident_memory_bytes", "gauge", "Resident memory.", resident),
        ("open_fds", "gauge", "Open files and sockets.", files),
    )


def rows(prefix: str, *given: Row) -> Iterator[str]:
    """Families of one value each, their names behind ``prefix``."""
    for name, kind, meaning, value in given:
        yield from single(f"{prefix}_{name}", kind, meaning, value)


def release() -> str:
    """The version of the package; ``unknown`` where it is not installed as one."""
    try:
        return version("barnabas")
    except PackageNotFoundError:
        return "unknown"

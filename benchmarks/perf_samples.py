"""What processes spend CPU time on, sampled by Linux's ``perf``: shares by kind of work.

``perf record`` samples the CPU clock, which any kernel and any virtual machine has; it needs no
rights where ``kernel.perf_event_paranoid`` is 2 or less and the processes are one's own.
Source: perf-record(1), perf-script(1).
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

FREQUENCY: Final = 999
"""Samples of a second of CPU time; no divisor of the kernel's ticks."""
START_S: Final = 1.0
"""How long perf may take to attach to every thread."""

_FRAME: Final = re.compile(r"^\s+[0-9a-f]+ (?P<symbol>.+) \((?P<file>[^()]*|\[.*\])\)$")
_SYSTEM_CALL: Final = re.compile(r"^(?:__x64_sys_|__arm64_sys_|__sys_|ksys_)(\w+)$")
_KINDS: Final = (
    ("libpython", "interpreter"),
    ("bin/python", "interpreter"),
    ("barnabas__mypyc", "compiled modules"),
    ("uvloop", "uvloop"),
    ("crc32c", "checksums"),
    ("cramjam", "codecs"),
    ("libz", "codecs"),
    ("libc.so", "C library (copies)"),
)

Frame = tuple[str, str]
"""A symbol and the file that has it."""


class NoPerf(Exception):  # noqa: N818 - says what is missing
    """There is no ``perf``: apt-get install linux-perf, or linux-tools."""


class PerfSamples:
    """Takes samples of processes as long as the ``with`` lasts."""

    def __init__(self, pids: Iterable[int], directory: Path) -> None:
        """Raises NoPerf."""
        if shutil.which("perf") is None:
            raise NoPerf("no perf: apt-get install linux-perf")
        self._pids = ",".join(map(str, pids))
        self._file = directory / "perf.data"

    def __enter__(self) -> Self:
        self._file.unlink(missing_ok=True)
        command = ["perf", "record", "-e", "cpu-clock", "-F", str(FREQUENCY), "-g"]
        command += ["-o", str(self._file), "-p", self._pids]
        null = subprocess.DEVNULL
        self._perf = subprocess.Popen(command, stdout=null, stderr=null)
        time.sleep(START_S)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._perf.send_signal(signal.SIGINT)
        self._perf.wait()

    def shares(self) -> Mapping[str, float]:
        """The part of all samples by kind of work, the largest first."""
        command = ["perf", "script", "-i", str(self._file), "-F", "ip,sym,dso"]
        told = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
        )
        return shares(told.stdout.splitlines())


def shares(lines: Iterable[str]) -> Mapping[str, float]:
    """What ``perf script -F ip,sym,dso`` printed, as parts of the whole, the largest first."""
    counts = Counter(map(kind_of, _stacks(lines)))
    total = counts.total()
    return {kind: count / total for kind, count in counts.most_common()}


def kind_of(stack: Sequence[Frame]) -> str:
    """The system call that a sample is in, or else the library; ``stack`` begins at the leaf."""
    file = stack[0][1]
    if file.startswith("[kernel"):
        for name, _ in stack:
            if found := _SYSTEM_CALL.match(name):
                return f"kernel: {found[1]}"
        is_fault = any("page_fault" in name for name, _ in stack)
        return "kernel: page faults" if is_fault else "kernel: the rest"
    return next((kind for part, kind in _KINDS if part in file), "other libraries")


def _stacks(lines: Iterable[str]) -> Iterator[Sequence[Frame]]:
    stack: list[Frame] = []
    for line in lines:
        if found := _FRAME.match(line):
            stack.append((found["symbol"].partition("+")[0], found["file"]))
        elif stack:
            yield stack
            stack = []
    if stack:
        yield stack

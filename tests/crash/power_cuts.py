"""Cut the power of a writing process again and again, and check what is left each time.

    python -m tests.crash.power_cuts --cycles 2000 --seed 1

One ext4 image serves all cycles; each of them is a process of its own that recovers what the one
before left behind. Needs root and loop devices. Source: docs/spec/reliability.md §3 (P11) and §4.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.crash.history import History
from tests.crash.powered_disk import ORDERED, WRITEBACK, Cut, PoweredDisk, hide_mounts, why_not
from tests.crash.writer import TOPICS, Orders, run

CYCLES_A_DISK: Final = 25
"""Then the file system is made anew, with empty logs."""
STARTUP_S: Final = 120.0
ENDS: Final = {
    "power cut": 60,
    "power cut, journal written": 20,
    "power cut while recovering": 10,
    "kill": 6,
    "clean stop": 4,
}


@dataclass
class Figures:
    """What the cycles came to."""

    cycles: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    records: int = 0
    """Appended."""
    durable: int = 0
    """Acknowledged as safe from a power cut."""
    lost: int = 0
    """Of the durable ones: must be 0."""
    unsafe_lost: int = 0
    """Appended and not yet durable, gone after a cut."""
    recoveries: list[float] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    """What recovery found, by the words of its warnings."""
    broken: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """For a report: counts, and times in milliseconds."""
        times = sorted(self.recoveries) or [0.0]
        return vars(self) | {
            "recoveries": len(self.recoveries),
            "recovery_ms": {
                "p50": round(times[len(times) // 2] * 1000, 1),
                "p99": round(times[len(times) * 99 // 100] * 1000, 1),
                "max": round(times[-1] * 1000, 1),
            },
        }


class PowerCuts:
    """One disk and the processes that live on it, one after the other."""

    def __init__(self, disk: PoweredDisk, seed: int, keep: Path | None = None) -> None:
        self._disk = disk
        self._keep = keep
        self._random = Random(seed)
        self._histories: dict[str, History] = {}
        self._next_id = 0
        self._was_power_cut = False
        self._cut_at = inf
        """Nothing counts that is seen later: a stopped ext4 may read zeros and lie about fsync."""
        self.figures = Figures()

    def cycle(self) -> None:
        """One process from its recovery to its death."""
        if self.figures.cycles % CYCLES_A_DISK == 0:
            self._disk.format()
            self._histories = {topic: History() for topic in TOPICS}
            if self._keep is not None:
                self._keep.with_suffix(".events").unlink(missing_ok=True)
            self._was_power_cut = False
        self.figures.cycles += 1
        self._cut_at = inf
        end = self._random.choices(list(ENDS), list(ENDS.values()))[0]
        self.figures.ends[end] += 1
        self._tell({"what": "cycle", "end": end, "was_power_cut": self._was_power_cut})
        self._disk.mount(self._random.choice((ORDERED, WRITEBACK)))
        if self._keep is not None:
            shutil.rmtree(self._keep, ignore_errors=True)
            shutil.copytree(self._disk.root, self._keep / "before")
        try:
            child, report = self._spawn(is_clean_stop=end == "clean stop")
            try:
                self._await_end(end, child, report)
            finally:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            report.drain()
            report.close()
        finally:
            if self._keep is not None and self.figures.broken:
                with suppress(shutil.Error):
                    shutil.copytree(self._disk.root, self._keep / "after")
            self._disk.unmount()
        self._was_power_cut = end.startswith("power cut")

    def _spawn(self, *, is_clean_stop: bool) -> tuple[int, Report]:
        read_end, write_end = os.pipe()
        orders = Orders(
            root=self._disk.root,
            seed=self._random.getrandbits(32),
            histories=self._histories,
            first_id=self._next_id,
            is_power_cut=self._was_power_cut,
            is_clean_stop=is_clean_stop,
            report=write_end,
        )
        child = os.fork()
        if child == 0:
            os.close(read_end)
            try:
                run(orders)
            except BaseException as error:  # noqa: BLE001 - a forked process ends here
                sys.stderr.write(f"{error!r}\n")
            finally:
                os._exit(0)
        os.close(write_end)
        return child, Report(read_end, self._hear)

    def _await_end(self, end: str, child: int, report: Report) -> None:
        if end == "clean stop":
            report.listen(until="stopped", seconds=STARTUP_S)
            return
        if end == "power cut while recovering":
            report.listen(until="", seconds=self._random.random() * 0.02)
        else:
            report.listen(until="loaded", seconds=STARTUP_S)
            report.listen(until="", seconds=self._random.random() * 0.12)
        if end != "kill":
            self._cut_at = time.monotonic()
            self._tell({"what": "cut", "at": self._cut_at})
            journal = end == "power cut, journal written"
            self._disk.cut(Cut.LOG_FLUSH if journal else Cut.NO_LOG_FLUSH)
            report.listen(until="", seconds=0.002)

    def _hear(self, said: dict[str, Any]) -> None:
        self._tell(said)
        what, is_late = said["what"], said["at"] >= self._cut_at
        if what == "append":
            self._next_id = said["ids"][-1] + 1
        if what in ("append", "truncate", "begin", "accepted"):
            # Appends and the like are said before they are done: they may have been in time.
            self._hear_of_change(said, self._histories[said["topic"]], is_late=is_late)
        elif not is_late:
            self._hear_of_state(said)

    def _tell(self, what: dict[str, Any]) -> None:
        """Leave a trace for whoever must find out why a promise was broken."""
        if self._keep is not None:
            with self._keep.with_suffix(".events").open("a") as events:
                events.write(json.dumps(what) + "\n")

    def _hear_of_change(self, said: dict[str, Any], history: History, *, is_late: bool) -> None:
        what, figures = said["what"], self.figures
        if what == "truncate":
            history.about_to_truncate(said["offset"])
        elif what == "begin":
            history.about_to_begin_at(said["offset"])
        elif what == "append":
            figures.records += len(said["ids"])
            history.about_to_append(said["base"], said["ids"])
        else:
            figures.unsafe_lost += max(0, len(history.ids) - len(said["ids"]))
            figures.lost += max(0, history.durable - len(said["ids"]))
            history.resume(said["ids"], is_durable=not is_late)

    def _hear_of_state(self, said: dict[str, Any]) -> None:
        figures, what = self.figures, said["what"]
        if what == "loaded":
            figures.recoveries.append(said["seconds"])
            figures.met.update(said["found"])
        elif what == "broken":
            figures.broken.append(said["message"])
        elif what == "durable":
            history = self._histories[said["topic"]]
            figures.durable += max(0, said["offset"] - history.durable)
            history.made_durable(said["offset"])
        elif what == "begun":
            self._histories[said["topic"]].begun_durably_at(said["offset"])


class Report:
    """The parent's end of the pipe: lines of JSON."""

    def __init__(self, descriptor: int, hear: Any) -> None:
        self._descriptor = descriptor
        self._hear = hear
        self._rest = b""
        self._has_ended = False

    def listen(self, *, until: str, seconds: float) -> None:
        """Hear everything for a while, or until something is said."""
        deadline = time.monotonic() + seconds
        while not self._has_ended:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            if select.select([self._descriptor], [], [], left)[0] and until in self._read():
                return
        if until and not self._has_ended:
            raise TimeoutError(f"nothing was heard of {until!r} for {seconds} s")

    def drain(self) -> None:
        """Hear the last words of a process that is gone."""
        while not self._has_ended:
            self._read()

    def _read(self) -> set[str]:
        data = os.read(self._descriptor, 1 << 16)
        self._has_ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        heard = [json.loads(line) for line in lines]
        for said in heard:
            self._hear(said)
        return {said["what"] for said in heard}

    def close(self) -> None:
        os.close(self._descriptor)


def bench(cycles: int, seed: int, *, keep: Path | None = None) -> Figures:
    """Run so many cycles, fewer when a promise is broken; ``keep`` then holds its two states."""
    hide_mounts()
    home = Path(tempfile.mkdtemp(prefix="barnabas-crash-"))
    disk = PoweredDisk(home)
    try:
        running = PowerCuts(disk, seed, keep)
        while running.figures.cycles < cycles and not running.figures.broken:
            running.cycle()
    finally:
        disk.close()
        shutil.rmtree(home)
    return running.figures


def main() -> int:
    """The command; prints a line of JSON, its exit code says whether every promise was kept."""
    logging.getLogger().addHandler(logging.NullHandler())
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep the directory of a broken promise here")
    arguments = parser.parse_args()
    if reason := why_not():
        sys.stderr.write(f"no power to cut: {reason}\n")
        return 2
    began = time.monotonic()
    figures = bench(arguments.cycles, arguments.seed, keep=arguments.keep)
    took = time.monotonic() - began
    summary = {"seed": arguments.seed, "seconds": round(took, 1), **figures.summary()}
    sys.stdout.write(json.dumps(summary, indent=1) + "\n")
    return 1 if figures.broken or figures.lost else 0


if __name__ == "__main__":
    sys.exit(main())

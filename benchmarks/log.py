"""What the log itself costs: append, read, find, recover; beside the limit of this machine.

    python -m benchmarks.log [--megabytes N] [--rounds N] [--json FILE]

The limit is measured in the same run with the same bytes: write() for appends, pread() for reads,
pread() and CRC-32C for recovery. Seconds are the process's CPU, all threads, files are in the page
cache: what a shared machine can measure. A number is the best of its rounds.
Compaction has a benchmark of its own: benchmarks/compaction.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mmap
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from crc32c import crc32c

from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.settings.node_config import StorageSettings
from barnabas.broker.storage.files import DiskFiles
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.produce_rules import ProduceRules
from barnabas.protocol.records.validate import prepare
from benchmarks.barnabas_node import ROOT
from benchmarks.report import machine

BATCHES = (1, 10, 100, 1000, 9000)
"""Records in a batch."""
VALUE_BYTES = 100
STEP_BYTES = 1 << 20
SEGMENT_BYTES = 128 << 20
LOOKUPS = 2000
APPENDS_MAX = 50_000
RULES = ProduceRules()


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One line of the report: what was measured, ours and the machine's."""

    what: str
    unit: str
    ours: float
    """MB or records for each second of CPU, or CPU for each GB or lookup."""
    limit: float
    limit_is: str
    note: str = ""

    @property
    def ratio(self) -> float:
        """Ours to the limit: 1 is perfect, whichever way the unit counts."""
        is_time = self.unit.startswith(("s ", "us"))
        return self.limit / self.ours if is_time else self.ours / self.limit


def wall_clock_ms() -> int:
    """The real time, as a node takes it."""
    return time.time_ns() // 1_000_000


def manager(directory: Path) -> LogManager:
    """A node's logs, of which this benchmark has one."""
    return LogManager(
        DiskFiles(),
        [directory],
        LogConfig(),
        lambda topic: {"segment.bytes": str(SEGMENT_BYTES)},
        wall_clock_ms,
        intervals=StorageSettings(),
        random=random.Random(1),
    )


@contextmanager
def fresh_log() -> Iterator[Log]:
    """An empty log in a directory that is gone afterwards, and its memory with it."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        logs = manager(Path(directory))
        asyncio.get_running_loop()
        yield logs_loaded(logs).create("bench", 0, None)


def logs_loaded(logs: LogManager) -> LogManager:
    """``logs`` once they are loaded; there is nothing to load, so that no step waits."""
    steps = logs.load().__await__()
    for _ in islice(steps, 1):
        raise AssertionError("an empty directory took time")
    return logs


def one_batch(records: int) -> bytearray:
    """A batch as a producer sends it: values of random bytes, no keys."""
    pairs = [(None, os.urandom(VALUE_BYTES)) for _ in range(records)]
    return build_batch(pairs, timestamp_ms=wall_clock_ms())


def best(rounds: int, once: Callable[[], float]) -> float:
    """The least of so many seconds."""
    return min(once() for _ in range(rounds))


def seconds(work: Callable[[], object]) -> float:
    """The CPU that ``work`` takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def append_rows(rounds: int, megabytes: int) -> list[FigureRow]:
    """Appending by size of batch, alone and with what a produce request's batch goes through."""
    rows = []
    for records in BATCHES:
        batch = one_batch(records)
        sent = bytes(batch)
        times = min(APPENDS_MAX, max(1, megabytes * 1_000_000 // len(batch)))
        size = times * len(batch) / 1e6

        def appended(batch: bytearray = batch, times: int = times) -> float:
            with fresh_log() as log:
                append = log.append
                return seconds(
                    lambda: [append(batch, leader_epoch=0, is_client=True) for _ in range(times)]
                )

        def produced(sent: bytes = sent, times: int = times) -> float:
            view = memoryview(bytearray(sent))
            with fresh_log() as log:

                def all_of_them() -> None:
                    for _ in range(times):
                        view[:] = sent
                        ready = prepare(view, produce_version=9, rules=RULES, now_ms=0)
                        assert ready is not None
                        log.append(ready.batch, leader_epoch=0, is_client=True)

                return seconds(all_of_them)

        limit = size / best(rounds, lambda b=batch, t=times: written(b, t))  # type: ignore[misc]
        for what, work in (("append", appended), ("validate and append", produced)):
            took = best(rounds, work)
            note = f"{times * records / took / 1e3:.0f} k records/s"
            name = f"{what}, {records} records, {len(batch)} bytes"
            rows.append(FigureRow(name, "MB/s", size / took, limit, "write()", note))
        took = best(rounds, lambda b=batch, t=times: mapped(b, t))  # type: ignore[misc]
        name = f"copied into a mapped file, {records} records, {len(batch)} bytes"
        rows.append(FigureRow(name, "MB/s", size / took, limit, "write()"))
    return rows


def written(batch: bytearray, times: int) -> float:
    """The same bytes in as many plain writes."""
    with tempfile.NamedTemporaryFile(prefix="barnabas-bench-") as file:
        descriptor = file.fileno()
        return seconds(lambda: [os.write(descriptor, batch) for _ in range(times)])


def mapped(batch: bytearray, times: int) -> float:
    """The same bytes into the memory of a file that was given its blocks before (not counted).

    What appends without a system call would cost at the least: docs/decisions/0014.
    """
    with tempfile.NamedTemporaryFile(prefix="barnabas-bench-") as file:
        length = len(batch)
        os.posix_fallocate(file.fileno(), 0, times * length)
        with mmap.mmap(file.fileno(), times * length) as memory:

            def all_of_them() -> None:
                for at in range(0, times * length, length):
                    memory[at : at + length] = batch

            return seconds(all_of_them)


def read_rows(log: Log, rounds: int) -> list[FigureRow]:
    """Reading all of it in order, and finding places in it."""
    size = sum(segment.size for segment in log.segments.view.segments)
    paths = [segment.path(".log") for segment in log.segments.view.segments]

    def sequentially() -> None:
        offset, end = 0, log.end_offset
        while offset < end:
            data = log.read(offset, bytes_max=STEP_BYTES, end=end, at_least_one=True)
            offset += BATCHES[2] * (len(data) // one)

    one = len(one_batch(BATCHES[2]))
    took = best(rounds, lambda: seconds(sequentially))
    limit = best(rounds, lambda: seconds(lambda: read_plainly(paths)))
    rng = random.Random(2)
    places = [rng.randrange(log.end_offset) for _ in range(LOOKUPS)]
    segments = [log.segments.view.segments[log.segments.view.floor(place)] for place in places]

    def looked_up() -> None:
        for place, segment in zip(places, segments, strict=True):
            segment.indexes.position_of(place)

    def found() -> None:
        for place in places:
            log.read(place, bytes_max=1, end=log.end_offset, at_least_one=True)

    lookup = best(rounds, lambda: seconds(looked_up)) / LOOKUPS * 1e6
    find = best(rounds, lambda: seconds(found)) / LOOKUPS * 1e6
    with paths[0].open("rb") as file:
        descriptor = file.fileno()
        pread = best(
            rounds, lambda: seconds(lambda: [os.pread(descriptor, one, p) for p in places])
        )
    pread *= 1e6 / LOOKUPS
    return [
        FigureRow("sequential read", "MB/s", size / took / 1e6, size / limit / 1e6, "pread()"),
        FigureRow("offset index lookup", "us", lookup, pread, "pread() of a batch"),
        FigureRow("read one batch at a random offset", "us", find, pread, "pread() of a batch"),
    ]


def read_plainly(paths: Sequence[Path]) -> int:
    """Read every file in large steps; a checksum over all of it."""
    return sum(len(data) for data in contents(paths))


def contents(paths: Sequence[Path]) -> Iterator[bytes]:
    """The bytes of every file in large steps."""
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while data := file.read(STEP_BYTES):
                yield data


async def fill(directory: Path, megabytes: int) -> None:
    """Fill a log and end the process as a crash would: no checkpoint, no marker."""
    batch = one_batch(BATCHES[2])
    logs = manager(directory)
    await logs.load()
    log = logs.create("bench", 0, None)
    for _ in range(megabytes * 1_000_000 // len(batch)):
        log.append(batch, leader_epoch=0, is_client=True)
    os._exit(0)


def leave_behind(directory: str, megabytes: int) -> None:
    """A log whose process has crashed."""
    command = [sys.executable, "-m", "benchmarks.log", "--fill", directory]
    subprocess.run([*command, "--megabytes", str(megabytes)], cwd=ROOT, check=True)


async def recover(rounds: int, megabytes: int) -> list[FigureRow]:
    """Start on a log that was never flushed; then read it."""
    least, least_wall, rows = float("inf"), float("inf"), list[FigureRow]()
    for number in range(rounds):
        with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as name:
            directory = Path(name)
            leave_behind(name, megabytes)
            logs = manager(directory)
            began, began_wall = time.process_time(), time.perf_counter()
            await logs.load()
            least = min(least, time.process_time() - began)
            least_wall = min(least_wall, time.perf_counter() - began_wall)
            log = logs.get("bench", 0)
            assert log is not None
            assert log.end_offset
            if number == rounds - 1:
                paths = [segment.path(".log") for segment in log.segments.view.segments]
                gigabytes = sum(path.stat().st_size for path in paths) / 1e9
                limit = best(rounds, lambda p=paths: seconds(lambda: checked(p)))  # type: ignore[misc]
                ours, least_s = least / gigabytes, limit / gigabytes
                note = f"{least_wall / gigabytes:.2f} s per GB by the clock, fsync included"
                rows.append(
                    FigureRow("recovery", "s per GB", ours, least_s, "pread() and CRC-32C", note)
                )
                rows += read_rows(log, rounds)
            await logs.close()
    return rows


def checked(paths: Sequence[Path]) -> None:
    """Every byte read and checksummed."""
    for data in contents(paths):
        crc32c(data)


def table(rows: Sequence[FigureRow]) -> str:
    """Markdown; the ratio is 1 where the machine itself is the limit."""
    lines = ["| what | ours | limit of the machine | ratio | |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        digits = 0 if row.unit == "MB/s" else 2
        lines.append(
            f"| {row.what} | {row.ours:.{digits}f} {row.unit} | "
            f"{row.limit:.{digits}f} {row.unit}, {row.limit_is} | {row.ratio:.2f} | {row.note} |"
        )
    return "\n".join(lines)


async def measure(rounds: int, megabytes: int) -> list[FigureRow]:
    """Everything, one after the other."""
    return append_rows(rounds, megabytes) + await recover(rounds, megabytes)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=256, help="written in one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write every row to this file")
    parser.add_argument("--fill", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill is not None:
        asyncio.run(fill(options.fill, options.megabytes))
    rows = asyncio.run(measure(options.rounds, options.megabytes))
    print(f"machine: {machine()}")
    print(table(rows))
    if options.json:
        found = [{**asdict(row), "ratio": row.ratio} for row in rows]
        options.json.write_text(json.dumps({"machine": machine(), "rows": found}, indent=2))


if __name__ == "__main__":
    main()

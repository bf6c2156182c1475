"""Flip one bit of a stopped node's data directory, start the node, ask it for everything.

    python -m tests.proof.bit_flips --cases 300 [--first 0] [--json FILE]

The directory is the one of directory.py: every kind of file. A case is one bit, and a start after
a stop in order or, every second one, after a kill. Kinds of files take turns; within one the
places come in a shuffled order, each once before any of its other bits, so that 65,536 cases reach
every byte several times. Ends with 1 when something wrong was served. Source: docs/log.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

from barnabas.broker.daemon import NodeFailed
from barnabas.client.connection.connection import Connection
from barnabas.client.errors import KafkaError
from barnabas.protocol.errors import ErrorCode
from tests.proof.client_view import EVERYTHING, Reading, differences, offset_of, read
from tests.proof.data_directory import (
    CLEAN,
    GROUPS,
    KINDS,
    LAST_OFFSET,
    PLAIN,
    SEED,
    Directory,
    cluster_of,
    commit_once,
    produce_once,
    written,
)
from tests.sim.simulated_loop import SimulatedLoop
from tests.sim.test_daemon import HOST, SingleNodeCluster

NEW_OFFSET: Final = 7_777
TURNS: Final = 16
"""Eight bits, after a stop and after a kill."""
VIOLATIONS_SHOWN: Final = 50
LIFE_S: Final = 600
"""Of simulated time; a life takes a few seconds of it."""
TURNS_MAX: Final = 100_000
"""Of the loop; a life takes about a thousand."""


@dataclass(frozen=True, order=True)
class Flip:
    """One bit."""

    path: Path
    place: int
    bit: int
    is_clean: bool
    """The node was stopped in order; else it was killed."""

    def __str__(self) -> str:
        end = "stop" if self.is_clean else "kill"
        return f"{self.path} byte {self.place} bit {self.bit} after a {end}"


@dataclass
class Outcome:
    """What a node did with it."""

    wrong: list[str] = field(default_factory=list)
    is_refused: bool = False
    """The node did not start, and said why."""
    records_refused: int = 0
    groups_refused: int = 0


@dataclass
class Figures:
    """What the cases came to."""

    cases: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    starts_refused: Counter[str] = field(default_factory=Counter)
    """By kind of file."""
    records_refused: int = 0
    groups_refused: int = 0
    violations: list[str] = field(default_factory=list)
    directory_bytes: int = 0
    files: int = 0


@cache
def directory() -> Directory:
    """The one that all cases begin with."""
    # What former tests of this process left is not to be complained of in the life of a node:
    # a traceback there is a finding.
    gc.collect()
    return written()


@cache
def whole() -> tuple[Reading, tuple[int, ...]]:
    """What a client is served of the directory as it is, and the times that are asked for."""
    end = directory().wall_ms
    times = tuple(range(end - 4_000, end + 4_000, 2_000))
    outcome, told = lived(directory(), CLEAN, times)
    assert not outcome.wrong, outcome.wrong
    assert told is not None
    assert len(told.parts[PLAIN, EVERYTHING].rows) == 31
    last = [LAST_OFFSET + place for place in range(len(GROUPS))]
    assert [told.offsets[group] for group in GROUPS] == last
    return told, times


def kind_of(path: Path) -> str | None:
    """Which of KINDS a file is; None for what is none of them."""
    return next((kind for kind in sorted(KINDS) if path.name.endswith(kind)), None)


def flips() -> Iterator[Flip]:
    """Every bit after both ends; the same at every call."""
    rng = random.Random(SEED)
    places: dict[str, list[tuple[Path, int]]] = {kind: [] for kind in sorted(KINDS)}
    for path, data in sorted(directory().files.items()):
        kind = kind_of(path)
        if kind is not None:
            places[kind] += [(path, place) for place in range(len(data))]
    for of_kind in places.values():
        rng.shuffle(of_kind)
    for number in range(TURNS * max(map(len, places.values()))):
        for all_of_kind in places.values():
            turn, index = divmod(number, len(all_of_kind))
            if turn < TURNS:
                path, place = all_of_kind[index]
                is_clean = bool((index + turn + turn // 8) % 2)
                yield Flip(path, place, (place + turn) % 8, is_clean)


def tried(flip: Flip) -> Outcome:
    """Start a node on the directory with this bit flipped, and compare what it says."""
    wanted, times = whole()
    files = dict(directory().files)
    data = bytearray(files[flip.path])
    data[flip.place] ^= 1 << flip.bit
    files[flip.path] = bytes(data)
    if not flip.is_clean:
        del files[CLEAN]
    outcome, told = lived(replace(directory(), files=files), flip.path, times)
    if told is not None:
        outcome.wrong += differences(told, wanted, flip.path.name)
        outcome.records_refused = sum(len(part.refused) for part in told.parts.values())
        outcome.groups_refused = sum(offset is None for offset in told.offsets.values())
    return outcome


class _Tracebacks(logging.Handler):
    """What was logged with a traceback: an exception that nobody foresaw."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None:
            self.found.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


def lived(stored: Directory, path: Path, times: Sequence[int]) -> tuple[Outcome, Reading | None]:
    """One life of a node, asked for everything; the reading is None when it did not start."""
    outcome, told = Outcome(), None
    tracebacks = _Tracebacks()
    root = logging.getLogger()
    root.addHandler(tracebacks)
    try:
        with asyncio.Runner(loop_factory=lambda: SimulatedLoop(SEED, TURNS_MAX)) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, SimulatedLoop)
            scenario = _life(cluster_of(loop, stored), times, outcome)
            told = runner.run(asyncio.wait_for(scenario, LIFE_S))
    except NodeFailed as failure:
        outcome.is_refused = True
        if str(path) not in str(failure) and str(path.parent) not in str(failure):
            outcome.wrong.append(f"did not start, and does not name the file: {failure}")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        outcome.wrong.append(f"{type(error).__name__}: {error}")
    finally:
        root.removeHandler(tracebacks)
    outcome.wrong += [f"traceback: {traceback}" for traceback in tracebacks.found]
    return outcome, told


async def _life(cluster: SingleNodeCluster, times: Sequence[int], outcome: Outcome) -> Reading:
    stop, ready = asyncio.Event(), asyncio.Event()
    cluster.stop = stop
    node = asyncio.create_task(_run(cluster, ready))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({node, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if node.done():
        await node
    connection = await Connection.open(HOST, 9092)
    try:
        told = await read(connection, times)
        outcome.wrong += await _goes_on(connection, told)
    except KafkaError as error:
        told = Reading()
        outcome.wrong.append(f"did not answer: {error!r}")
    await connection.close()
    stop.set()
    await node
    return told


async def _run(cluster: SingleNodeCluster, ready: asyncio.Event) -> None:
    from barnabas.broker import daemon

    await daemon.run(
        cluster.config,
        cluster.stop,
        ready=lambda ports: ready.set(),
        files=cluster.disk,
        connect=cluster.connect,
        now_ms=cluster.loop.wall_ms,
        rng=cluster.loop.random,
    )


async def _goes_on(connection: Connection, told: Reading) -> list[str]:
    """New records and commits are taken, or refused; what was taken is there."""
    wrong = []
    code, offset = await produce_once(connection, PLAIN, [(b"new", b"record")])
    part = told.parts[PLAIN, EVERYTHING]
    if code == ErrorCode.NONE and not offset >= part.end:
        wrong.append(f"a new record got the offset {offset} although the end was {part.end}")
    for group in GROUPS:
        code = await commit_once(connection, group, NEW_OFFSET)
        found = await offset_of(connection, group)
        if code == ErrorCode.NONE and found != NEW_OFFSET:
            wrong.append(f"{group}: {found} after a commit of {NEW_OFFSET}")
        if code != ErrorCode.NONE and found not in (None, told.offsets[group]):
            wrong.append(f"{group}: {found} after a commit that was refused with {code}")
    return wrong


def run(cases: int, first: int = 0) -> Figures:
    """So many cases, from the one with this number on."""
    figures = Figures()
    figures.files = len(directory().files)
    figures.directory_bytes = sum(map(len, directory().files.values()))
    for flip in islice(flips(), first, first + cases):
        outcome = tried(flip)
        kind = kind_of(flip.path) or "others"
        figures.cases += 1
        figures.by_kind[kind] += 1
        figures.starts_refused[kind] += outcome.is_refused
        figures.records_refused += outcome.records_refused
        figures.groups_refused += outcome.groups_refused
        figures.violations += [f"{flip}: {wrong}" for wrong in outcome.wrong]
    figures.starts_refused = +figures.starts_refused
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when nothing wrong was served."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.bit_flips")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--json", type=Path, help="write the results there")
    asked = parser.parse_args(arguments)
    logging.getLogger().addHandler(logging.NullHandler())  # else warnings go to stderr
    figures = run(asked.cases, asked.first)
    for violation in figures.violations[:VIOLATIONS_SHOWN]:
        sys.stdout.write(f"{violation}\n")
    text = json.dumps(vars(figures), indent=1)
    if asked.json is not None:
        asked.json.write_text(text + "\n")
    sys.stdout.write(text + "\n")
    return 1 if figures.violations else 0


if __name__ == "__main__":
    sys.exit(main())

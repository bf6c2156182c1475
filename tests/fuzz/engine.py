"""Change known bytes at random, have them read, and see that nothing but a refusal comes of it.

A case is decided by its target and number alone, so that a failure is run again by its number.
CPU time is measured of every case, memory (that Python allocates) of every 64th.
Source: docs/spec/reliability.md §7.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).with_name("corpus")
BYTES_MAX: Final = 64 << 10
CPU_MS_MAX: Final = 100.0
"""Of the fastest of three tries: what is slow once was disturbed, or collected garbage."""
MEMORY_EACH: Final = 64
BYTES_FREE: Final = 1 << 20
"""What any input may cost; larger ones cost so many times their size more, as a target says."""
_EXTREMES = """
    00 01 7f 80 ff 0000 7fff ffff 8000 00000000 7fffffff ffffffff 80000000 fffffffe
    ffffffff0f ffffffff07 8080808000 ffffffffff 7fffffffffffffff ffffffffffffffff
    8000000000000000 ffffffffffffffffff01 feffffff0f
"""
EXTREMES: Final = tuple(map(bytes.fromhex, _EXTREMES.split()))
"""Numbers at the ends of their ranges, and lengths that lie."""


@dataclass(frozen=True, slots=True)
class Seed:
    """Good bytes, and what reads such bytes; anything it raises is a finding."""

    name: str
    data: bytes
    read: Callable[[bytes], object]


@dataclass(frozen=True)
class Target:
    """A decoder, or several that read the same kind of bytes."""

    name: str
    make: Callable[[], Sequence[Seed]]
    memory_factor: int
    """So many bytes are allocated at most for each byte of an input."""

    @cached_property
    def seeds(self) -> Sequence[Seed]:
        """Made when they are first needed."""
        found = self.make()
        assert found, self.name
        return found


@dataclass
class Found:
    """One input that did what none may do."""

    target: str
    number: int
    seed: str
    data: bytes
    what: str

    def __str__(self) -> str:
        return (
            f"{self.target} case {self.number}, from {self.seed}, {len(self.data)} bytes "
            f"{self.data[:60].hex()}: {self.what}"
        )


@dataclass
class Figures:
    """What the cases of one target came to."""

    target: str
    cases: int = 0
    slowest_ms: float = 0.0
    most_bytes_per_byte: float = 0.0
    """Of inputs of a KiB and more, beyond what any may cost."""
    findings: list[Found] = field(default_factory=list)


def spoilt(rng: random.Random, seeds: Sequence[Seed], chosen: Seed) -> bytes:
    """The chosen bytes after one to four changes; now and then blown up to 64 KiB."""
    data = bytearray(chosen.data)
    for _ in range(rng.randint(1, 4)):
        _change(rng, data, seeds)
    if data and rng.random() < 0.01:
        begin = rng.randrange(len(data))
        part = data[begin : begin + rng.choice((1, 2, 4, 16, 64))]
        data[begin:begin] = part * (rng.randrange(BYTES_MAX) // len(part))
    return bytes(data[:BYTES_MAX])


def _change(rng: random.Random, data: bytearray, seeds: Sequence[Seed]) -> None:
    place = rng.randint(0, len(data))
    kind = rng.randrange(7)
    if kind == 0 and place < len(data):
        data[place] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data[place : place + 4] = rng.randbytes(rng.randint(0, 8))
    elif kind == 2:
        extreme = rng.choice(EXTREMES)
        data[place : place + len(extreme)] = extreme
    elif kind == 3:
        data[place:place] = rng.choice(EXTREMES)
    elif kind == 4:
        del data[place : place + rng.randint(1, 16)]
    elif kind == 5:
        data[place:place] = data[place : place + rng.randint(1, 64)]
    else:
        other = rng.choice(seeds).data
        begin = rng.randint(0, len(other))
        data[place:] = other[begin:]


def case(target: Target, number: int) -> tuple[Seed, bytes]:
    """The input with this number."""
    rng = random.Random(f"{target.name} {number}")
    chosen = target.seeds[rng.randrange(len(target.seeds))]
    return chosen, spoilt(rng, target.seeds, chosen)


def tried(target: Target, numbers: range, *, cpu_ms_max: float = CPU_MS_MAX) -> Figures:
    """Have all these inputs read."""
    figures = Figures(target.name)
    for number in numbers:
        chosen, data = case(target, number)
        figures.cases += 1
        is_traced = number % MEMORY_EACH == 0 or len(data) > BYTES_MAX // 2
        what = _traced(target, chosen, data, figures) if is_traced else None
        what = what or _timed(chosen, data, figures, cpu_ms_max)
        if what is not None:
            figures.findings.append(Found(target.name, number, chosen.name, data, what))
    return figures


def replayed(target: Target, data: bytes) -> str | None:
    """What any of a target's readers does with these bytes that none may do."""
    figures = Figures(target.name)
    readers = {seed.read: seed for seed in target.seeds}
    for seed in readers.values():
        what = _traced(target, seed, data, figures) or _timed(seed, data, figures, 20 * CPU_MS_MAX)
        if what is not None:
            return f"{seed.name}: {what}"
    return None


def keep(found: Found) -> Path:
    """Put an input into the corpus, which test_corpus.py reads."""
    folder = CORPUS / found.target
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.number}.bin"
    path.write_bytes(found.data)
    return path


def _timed(seed: Seed, data: bytes, figures: Figures, cpu_ms_max: float) -> str | None:
    best = float("inf")
    for _ in range(3):
        began = time.thread_time()
        what = _read(seed, data)
        best = min(best, 1000 * (time.thread_time() - began))
        if what is not None:
            return what
        if best < cpu_ms_max / 4:
            break
    figures.slowest_ms = max(figures.slowest_ms, best)
    return f"took {best:.0f} ms of CPU" if best > cpu_ms_max else None


def _traced(target: Target, seed: Seed, data: bytes, figures: Figures) -> str | None:
    tracemalloc.start()
    try:
        what = _read(seed, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if what is not None:
        return what
    factor = (peak - BYTES_FREE) / max(1, len(data))
    figures.most_bytes_per_byte = max(figures.most_bytes_per_byte, round(factor, 1))
    if factor > target.memory_factor:
        return f"allocated {peak} bytes"
    return None


def _read(seed: Seed, data: bytes) -> str | None:
    try:
        seed.read(data)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {error}"
    return None

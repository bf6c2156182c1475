"""Large batches converted beside the event loop, in a process of their own.

A batch of 10,000 small records of an old format takes 30 to 80 ms of pure Python, one of 10 MB a
second: in a thread that would slow every other request. The process is started at need, ended
when it was idle, and ends by itself when the node dies. In the simulation the loop runs the work.
Source: docs/spec/log.md §1.9; docs/spec/reliability.md §5, docs/spec/log.md §5.8; docs/records.md
has the measurements.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records import batch
from barnabas.protocol.records.batch import Buffer
from barnabas.protocol.records.compression.codecs import Codec
from barnabas.protocol.records.convert import down_convert
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.first_record import first_record
from barnabas.protocol.records.produce_rules import (
    InvalidRecords,
    Prepared,
    ProduceRules,
    RecordError,
)
from barnabas.protocol.records.validate import prepare
from barnabas.protocol.records.work_limit import decompression_steps

from .inline_work import BATCH_STEPS, InlineWork

log = logging.getLogger(__name__)

T = TypeVar("T")

Found = tuple[int, int] | None
"""Timestamp and offset of a record."""

SMALL_BYTES: Final = 1 << 12
"""Of so little nothing is looked up beforehand: the bounds of inline_work.py are enough."""
INLINE_BYTES: Final = 1 << 20
"""An honest batch of magic 2 up to this is checked in a few ms, 20 with gzip."""
INLINE_RECORDS: Final = 20_000
INLINE_OLD_BYTES: Final = 1 << 14
"""Messages of magic 0 and 1 become a batch in 7 us each, and a wrapper does not say how many."""
INLINE_CONVERTED: Final = 500
"""Records become messages in 4 us each, 8 with gzip."""
IDLE_S: Final = 60.0
WORK_S_MAX: Final = 300.0
"""A batch whose turn and work take longer is given up: nobody waits without a bound."""


class _Refusal(NamedTuple):
    """A refusal on its way between processes, where an exception would lose its fields."""

    code: ErrorCode
    message: str
    record_errors: list[RecordError] | None


class ConversionProcess:
    """Runs conversions elsewhere, one at a time; the answers come on the loop."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self.inline = InlineWork()
        """What is not known to be large is tried here first."""
        self._idle_s = idle_s
        self._executor: ProcessPoolExecutor | None = None
        self._under_way = 0
        self._idle: asyncio.TimerHandle | None = None

    async def prepare(
        self, records: Buffer, *, produce_version: int, rules: ProduceRules, now_ms: int
    ) -> Prepared | None:
        """:func:`validate.prepare` of a copy of ``records``; raises InvalidRecords as that does."""
        return await self._run(_prepare, bytes(records), produce_version, rules, now_ms)

    async def down_convert(
        self, data: Buffer, magic: int, fetch_offset: int, bytes_max: int
    ) -> bytes:
        """:func:`convert.down_convert` of a copy of ``data``; raises Refused as that does."""
        return await self._run(_down_convert, bytes(data), magic, fetch_offset, bytes_max)

    async def first_record(self, data: bytes, timestamp: int, start: int) -> Found:
        """:func:`first_record.first_record`; raises Refused as that does."""
        return await self._run(first_record, data, timestamp, start)

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        self._under_way += 1
        if self._idle is not None:
            self._idle.cancel()
        try:
            async with asyncio.timeout(WORK_S_MAX):
                found = await loop.run_in_executor(self._alive(), _attempt, work, *arguments)
        except TimeoutError:
            log.warning("gave up a conversion after %d s", WORK_S_MAX)
            self.close()
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "checking it took too long") from None
        except BrokenProcessPool:
            log.warning("lost the process for conversions, went on without")
            self.close()
            found = await loop.run_in_executor(None, _attempt, work, *arguments)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle = loop.call_later(self._idle_s, self.close)
        if isinstance(found, _Refusal):
            raise _refused(found)
        result: T = found
        return result

    def _alive(self) -> ProcessPoolExecutor:
        if self._executor is None:
            context = get_context("spawn")
            self._executor = ProcessPoolExecutor(1, mp_context=context, initializer=_begin)
        return self._executor

    def close(self) -> None:
        """End the process; what is under way in it is still answered."""
        if self._idle is not None:
            self._idle.cancel()
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)


def is_large_to_append(records: Buffer | None) -> bool:
    """Whether checking what a producer sent takes long, as far as its header tells.

    A header may lie: what is not large by it is checked within bounds (inline_work.py).
    """
    if records is None or len(records) < SMALL_BYTES:
        return False
    if batch.magic(records) < 2:
        return len(records) > INLINE_OLD_BYTES
    if batch.codec(records) == Codec.GZIP:
        plain = int.from_bytes(records[-4:], "little")  # of its last member, as that ends
        if decompression_steps(Codec.GZIP, plain) > BATCH_STEPS:
            return True
    return len(records) > INLINE_BYTES or batch.record_count(records) > INLINE_RECORDS


def is_large_to_convert(data: Buffer, magic: int) -> bool:
    """Whether the whole entries of ``data`` take long to become messages of ``magic``."""
    count = 0
    for position, _ in batch.iterate(data):
        if batch.magic(data, position) == 2:
            count += max(0, batch.record_count(data, position))
        elif batch.magic(data, position) > magic:
            count += INLINE_CONVERTED if batch.codec(data, position) else 1
        if count > INLINE_CONVERTED:
            return True
    return False


def _prepare(data: bytes, version: int, rules: ProduceRules, now_ms: int) -> Prepared | None:
    return prepare(data, produce_version=version, rules=rules, now_ms=now_ms)


def _down_convert(data: bytes, magic: int, fetch_offset: int, bytes_max: int) -> bytes:
    return down_convert(data, magic, fetch_offset, bytes_max=bytes_max)


def _attempt(work: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return work(*arguments)
    except InvalidRecords as refused:
        return _Refusal(refused.code, refused.message, refused.record_errors)
    except Refused as refused:
        return _Refusal(refused.code, refused.message, None)


def _refused(refusal: _Refusal) -> Refused:
    if refusal.record_errors is not None:
        return InvalidRecords(refusal.code, refusal.message, refusal.record_errors)
    if refusal.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
        return Refused(refusal.code, refusal.message)
    return CorruptRecords(refusal.message, refusal.code)


def _begin() -> None:
    """In the process: leave signals to the node, and end with it however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    node = parent_process()
    assert node is not None
    threading.Thread(target=_follow, args=(node.sentinel,), daemon=True).start()


def _follow(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(0)

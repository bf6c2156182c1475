"""Fetch for clients that know no batches: versions 0 to 3, whose records are converted.

It reads like any other fetch, but a few batches at a time, and takes turns: what is large is
converted in another process, and others are served between two partitions.
Source: docs/spec/log.md §1.9 and §6.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.purgatory import DelayedFetch, awaited_fetch
from barnabas.protocol.errors import Refused
from barnabas.protocol.messages import fetch as messages
from barnabas.protocol.records import batch
from barnabas.protocol.records.convert import down_convert
from barnabas.protocol.records.work_limit import TooMuchWork, Work

from .call import Call
from .conversion_process import ConversionProcess, is_large_to_convert
from .fetch_sessions import PartitionRead

WAIT_S_MAX: Final = 30.0
"""Nobody tells us that the client has gone while it waits here; it may simply ask again."""
READ_BYTES: Final = 1 << 16
"""Stored bytes read at a time; a batch larger than that comes alone."""


Read = Callable[[Call, PartitionRead, int], None]
"""Fill in a partition's result with so many stored bytes, but a batch at least, or with a code."""


class OldFormatFetch:
    """Answers such requests; with coroutines, for conversion may take long."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        conversions: ConversionProcess,
        *,
        read: Read,
        led: Callable[[PartitionRead], Partition],
    ) -> None:
        """``led`` raises Refused when a partition is led elsewhere."""
        self._loop = loop
        self._conversions = conversions
        self._stored = read
        self._led = led

    async def read(self, call: Call, reads: Sequence[PartitionRead], bytes_max: int) -> None:
        """Fill in the results: return once enough was read, or time is up."""
        request: messages.FetchRequest = call.request
        wait_s = min(request.max_wait_ms / 1000, WAIT_S_MAX)
        deadline = self._loop.time() + wait_s
        while True:
            left = deadline - self._loop.time()
            # Watched first, read second: what is appended meanwhile ends the wait.
            missing = max(1, request.min_bytes)
            came, wait = awaited_fetch(self._loop, missing=missing, wait_s=max(0.0, left))
            watched = self._watched(reads, wait)
            try:
                size, has_more = await self._read_all(call, reads, bytes_max)
                is_bad = any(read.result.error_code for read in reads)
                is_enough = has_more or size >= request.min_bytes
                if left <= 0 or not reads or is_bad or is_enough:
                    return
                wait.grew(size)
                await came
            finally:
                wait.forget()
                for partition in watched:
                    partition.fetch_waiters.forget(wait)

    def _watched(self, reads: Sequence[PartitionRead], wait: DelayedFetch) -> list[Partition]:
        watched: list[Partition] = []
        for read in reads:
            try:
                partition = self._led(read)
            except Refused:
                continue  # its code comes with the read
            partition.fetch_waiters.wait(wait, is_committed=False)
            watched.append(partition)
        return watched

    async def _read_all(
        self, call: Call, reads: Sequence[PartitionRead], bytes_max: int
    ) -> tuple[int, bool]:
        """The bytes that were found, and whether some partition has more behind them.

        Then nobody waits for a least number of bytes: they are there, and a client that lags would
        wait for as long as it may for each few batches.
        """
        # The bound of versions without one is what a quota allows (throttle.py), as in Kafka.
        left = min(call.request.max_bytes, bytes_max)
        is_first, total, has_more = call.version == 3, 0, False
        for read in reads:
            has_more |= await self._read(call, read, max(0, left), at_least_one=is_first)
            count = len(read.result.records or b"")
            total += count
            left -= count
            is_first = is_first and not count
            await asyncio.sleep(0)
        return total, has_more

    async def _read(
        self, call: Call, read: PartitionRead, left: int, *, at_least_one: bool
    ) -> bool:
        """Whether records were found, and more are behind them."""
        own_max = max(0, read.partition.partition_max_bytes)
        bytes_max = min(own_max, left)
        self._stored(call, read, min(max(bytes_max, 1), READ_BYTES))
        result = read.result
        if result.error_code or not result.records:
            return False
        stored, result.records = result.records, b""
        try:
            converted, following = await self._converted(call, read, stored, max(bytes_max, 1))
        except Refused as refusal:
            result.error_code = refusal.code
            result.high_watermark = result.last_stable_offset = result.log_start_offset = -1
            return False
        is_full = len(converted) >= bytes_max
        if not at_least_one and len(converted) > bytes_max:
            # Up to version 2 a client takes a cut entry for "ask again with a larger size". What is
            # cut for another reason, or in version 3, would have it ask so in vain, or give up.
            is_asked_for = call.version < 3 and own_max <= left
            converted = converted[:bytes_max] if is_asked_for else _whole(converted, bytes_max)
        result.records = converted
        return bool(converted) and (is_full or following < result.high_watermark)

    async def _converted(
        self, call: Call, read: PartitionRead, stored: Any, bytes_max: int
    ) -> tuple[bytes, int]:
        """The first batches from the offset on that an old client can be given something of.

        And the offset behind what was read for them.
        """
        magic, start = 0 if call.version < 2 else 1, read.partition.fetch_offset
        following = start
        while stored:
            *_, (last, _) = batch.iterate(stored)
            following = batch.next_offset(stored, last)
            found = await self._in_turn(bytes(stored), magic, start, bytes_max)
            if found:
                return found, following
            await asyncio.sleep(0)
            stored = self._led(read).read(following, bytes_max=READ_BYTES, at_least_one=True)
        return b"", following

    async def _in_turn(self, stored: bytes, magic: int, start: int, bytes_max: int) -> bytes:
        """Wherever it holds up nobody: the headers say what is large, and they may lie."""

        def here(work: Work) -> bytes:
            if is_large_to_convert(stored, magic):
                raise TooMuchWork
            return down_convert(stored, magic, start, bytes_max=bytes_max, work=work)

        return await self._conversions.inline.run(
            here, lambda: self._conversions.down_convert(stored, magic, start, bytes_max)
        )


def _whole(entries: bytes, bytes_max: int) -> bytes:
    """The whole entries among the first bytes."""
    end = max((start + size for start, size in batch.iterate(entries[:bytes_max])), default=0)
    return entries[:end]

"""Who runs a compaction: the port, and the way that stays on the event loop.

A node has a process for it (worker_process.py). The loop runs it itself in the simulation,
where the disk is in memory. Source: docs/spec/log.md §5.8; docs/spec/reliability.md §5,
docs/spec/log.md §5.8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from barnabas.broker.storage.cooperative import SLICE_SECONDS
from barnabas.broker.storage.files import Files
from barnabas.broker.storage.segment.batch_headers import CorruptEntry
from barnabas.protocol.records.corrupt_records import CorruptRecords

from .compaction_job import Compacted, CompactionJob, Rewritten
from .compaction_pass import compact

Publish = Callable[[Rewritten], Awaitable[bool]]
"""Lets a run of segments be replaced; False when the log is not what it was, and the pass over."""

DAMAGED: Final = (CorruptEntry, CorruptRecords)
"""What a pass raises when the log itself cannot be read."""

_WINDOW_S: Final = 0.3


class PassStopped(Exception):  # noqa: N818 - what happened
    """The pass ended early because somebody said so."""


class PassFailed(Exception):  # noqa: N818 - what happened
    """The log cannot be compacted: its bytes are damaged, or our code is wrong."""


class WorkerLost(Exception):  # noqa: N818 - what happened
    """The worker died; says nothing about the log."""


class CompactionWorker(Protocol):
    """Runs one pass at a time."""

    async def compact(self, job: CompactionJob, publish: Publish) -> Compacted:
        """Run a pass; each run of segments is handed to ``publish`` once it is durable.

        Raises PassStopped, PassFailed, WorkerLost and StorageError.
        """

    def stop(self) -> None:
        """End the pass under way soon; harmless when there is none."""

    async def close(self) -> None:
        """End the worker, in the middle of a pass if need be."""


class Throttle:
    """How long to wait so that reads and writes together stay below a rate."""

    def __init__(self, bytes_per_second: float, now: Callable[[], float]) -> None:
        self._rate = bytes_per_second
        self._now = now
        self._began = now()
        self._bytes = 0

    def wait_s(self, byte_count: int) -> float:
        """Seconds to wait after ``byte_count`` more bytes; 0 nearly always."""
        self._bytes += byte_count
        elapsed = self._now() - self._began
        if elapsed < _WINDOW_S and self._bytes <= self._rate * _WINDOW_S:
            return 0.0
        excess_s = self._bytes / self._rate - elapsed
        self._began, self._bytes = self._now() + max(0.0, excess_s), 0
        return max(0.0, excess_s)


class LoopWorker:
    """Runs a pass on the event loop, in slices."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._is_stopped = False

    async def compact(self, job: CompactionJob, publish: Publish) -> Compacted:
        """See :class:`CompactionWorker`."""
        self._is_stopped = False
        loop = asyncio.get_running_loop()
        throttle = Throttle(job.bytes_per_second, loop.time)
        steps = compact(self._files, job)
        slice_ends = loop.time() + SLICE_SECONDS
        try:
            while True:
                step = next(steps)
                if isinstance(step, Rewritten):
                    if not await publish(step):
                        raise PassStopped
                elif wait_s := throttle.wait_s(step.byte_count):
                    await asyncio.sleep(wait_s)
                elif loop.time() >= slice_ends:
                    await asyncio.sleep(0)
                    slice_ends = loop.time() + SLICE_SECONDS
                if self._is_stopped:
                    raise PassStopped
        except StopIteration as done:
            compacted: Compacted = done.value
            return compacted
        except DAMAGED as damage:
            raise PassFailed(str(damage)) from damage
        finally:
            steps.close()

    def stop(self) -> None:
        """See :class:`CompactionWorker`."""
        self._is_stopped = True

    async def close(self) -> None:
        """Nothing to end."""
        self.stop()

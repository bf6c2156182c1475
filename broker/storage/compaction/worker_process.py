"""A compaction in a process of its own: started at need, kept for the next pass, ended when idle.

    us      one line a message: {"job": ...}, then for each run of segments "go", or "stop"
    worker  {"rewritten": [...]}, then {"compacted": [...]} or {"failed": ...}

Both ends are pipes, so that the worker learns of our death however we die.

    us      {"job": ...}                      "go"                      "go"
    worker                {"rewritten": ...}       {"rewritten": ...}        {"compacted": ...}

Between a ``rewritten`` and its answer the worker stands still, and we rename files: never both
write. A process and no thread: pure Python in a thread raised the p99 of an echo a hundredfold.
Source: docs/spec/log.md §5.8.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from pathlib import Path
from typing import Any, Final

from barnabas.broker.storage.cooperative import uninterrupted
from barnabas.broker.storage.files import StorageError

from .compaction_job import Compacted, CompactionJob, Rewritten
from .worker import PassFailed, PassStopped, Publish, WorkerLost

log = logging.getLogger(__name__)

MODULE: Final = "barnabas.broker.storage.compaction.worker_main"
IDLE_S: Final = 60.0
"""Seconds without a pass after which the process ends, and gives its memory back."""
_LINE_BYTES_MAX: Final = 1 << 20
"""Of an answer. A job may be longer: it names every segment and aborted transaction of a log."""


class ProcessWorker:
    """The port :class:`~barnabas.broker.storage.compaction.worker.CompactionWorker`.

    Owns at most one process. A pass ends with an answer, after which the process serves the next
    one, or without, after which it is killed: what it would do next is not known.
    """

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._process: asyncio.subprocess.Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._is_busy = False

    @property
    def pid(self) -> int | None:
        """Of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    async def compact(self, job: CompactionJob, publish: Publish) -> Compacted:
        """Hand the job over and follow it; a cancelled caller leaves no worker behind.

        Raises WorkerLost when the process died or could not be started: that may be for its memory
        or by hand, and says nothing about the log.
        """
        assert not self._is_busy
        self._is_stopped, self._is_busy = False, True
        if self._idle is not None:
            self._idle.cancel()
        answer: Compacted | Exception | None = None
        try:
            answer = await self._follow(await self._alive(), job, publish)
        finally:
            self._is_busy = False
            if answer is None:
                await self.close()  # nobody knows what it is doing
            else:
                self._close_when_idle()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _alive(self) -> asyncio.subprocess.Process:
        """The process, started when there is none or when it died while it was idle.

        Its standard error is ours: a traceback of its start is found in the node's output.
        """
        if self._process is not None and self._process.returncode is None:
            return self._process
        await self.close()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", MODULE),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES_MAX,
            )
        except OSError as error:
            raise WorkerLost(f"could not start: {error}") from error
        log.debug("started a worker pid=%d", self._process.pid)
        return self._process

    async def _follow(
        self, process: asyncio.subprocess.Process, job: CompactionJob, publish: Publish
    ) -> Compacted | Exception:
        """What the worker answers at the end of the pass; raises when there is no answer.

        A failure that the worker tells of is returned, not raised: the worker is well. What
        ``publish`` raises passes through, and leaves a worker that waits for a "go".
        """
        await self._send(process, f'{{"job": {job.to_json()}}}')
        while True:
            message = await self._receive(process)
            if "rewritten" in message:
                # It may have been on its way when `stop` was called: the log is about to be cut.
                is_wanted = not self._is_stopped and await publish(Rewritten(*message["rewritten"]))
                await self._send(process, json.dumps("go" if is_wanted else "stop"))
            elif "compacted" in message:
                return Compacted(*message["compacted"])
            else:
                return _failure(message["failed"])

    async def _send(self, process: asyncio.subprocess.Process, line: str) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(line.encode() + b"\n")
            await process.stdin.drain()
        except ConnectionError as error:
            raise WorkerLost(str(error)) from error

    async def _receive(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None
        line = await process.stdout.readline()
        # The end of the pipe, perhaps in the middle of a message.
        if not line.endswith(b"\n"):
            raise WorkerLost(f"the worker died pid={process.pid}")
        message: dict[str, Any] = json.loads(line)
        return message

    def _close_when_idle(self) -> None:
        """Keep the process a while for the next pass."""
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(self._idle_s, self._close_idle)

    def _close_idle(self) -> None:
        """It was idle for long: end it, and start another when there is work."""
        process, self._process = self._process, None
        if process is not None:
            # A timer cannot wait: :meth:`close` does, so that no task outlives the cleaner.
            self._closing = asyncio.get_running_loop().create_task(_end(process))

    def stop(self) -> None:
        """Tell the worker, which looks at its input every 64 KB and where it waits for a "go".

        One that comes too late is read before the next job, and ignored.
        """
        self._is_stopped = True
        if self._is_busy and self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(b'"stop"\n')

    async def close(self) -> None:
        """See :class:`CompactionWorker`."""
        if self._idle is not None:
            self._idle.cancel()
        process, self._process = self._process, None
        if process is not None:
            await uninterrupted(_end(process))
        if self._closing is not None:
            await asyncio.wait([self._closing])


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a worker and see it gone: whatever it was writing is removed by the next.

    Killed rather than asked, for there is nothing to save. Waited for, so that no zombie is left
    and it does not write on while its files are removed.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    if process.stdin is not None:
        process.stdin.close()
    await process.wait()


def _failure(failed: dict[str, Any]) -> Exception:
    """What the worker ran into, as the exception it was there.

    The path and the two flags of a StorageError decide whether its directory goes offline; a
    damaged log and a bug both mean that the log is left alone.
    """
    reason = failed["reason"]
    match failed["kind"]:
        case "storage":
            return StorageError(
                Path(failed["path"]),
                reason,
                is_full=failed["is_full"],
                is_missing=failed["is_missing"],
            )
        case "stopped":
            return PassStopped(reason)
        case _:
            return PassFailed(reason)

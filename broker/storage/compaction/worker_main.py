"""The worker process of compaction: reads jobs from its input, until that ends.

Started by worker_process.py, which also says what the lines mean.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from typing import Any, Final

from barnabas.broker.storage.files import DiskFiles, StorageError

from .compaction_job import Compacted, CompactionJob, Rewritten
from .compaction_pass import compact
from .worker import DAMAGED, PassStopped, Throttle

_NICENESS: Final = 10
"""Whoever waits for an answer goes first."""
_READ_BYTES: Final = 1 << 16
_LOOK_BYTES: Final = 1 << 16
"""How much is read and written between two looks at the clock and at our parent."""


class _Inbox:
    """Lines from a pipe, also without waiting for one."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._data = b""

    def has_more(self, wait_s: float = 0.0) -> bool:
        """Whether a line has come, or the end."""
        return b"\n" in self._data or bool(select.select([self._descriptor], [], [], wait_s)[0])

    def line(self) -> Any:
        """The next message, waited for. The end of the pipe is the end of this process."""
        while b"\n" not in self._data:
            more = os.read(self._descriptor, _READ_BYTES)
            if not more:
                raise SystemExit(0)
            self._data += more
        line, _, self._data = self._data.partition(b"\n")
        return json.loads(line)


def main() -> None:
    """Serve one job after another."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for our parent, whose end is ours
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.nice(_NICENESS)
    inbox = _Inbox(sys.stdin.fileno())
    while True:
        message = inbox.line()
        if isinstance(message, dict):  # a "stop" may come when there is nothing to stop any more
            _send(_outcome(CompactionJob.from_json(message["job"]), inbox))


def _send(message: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)  # nobody is left to tell


def _outcome(job: CompactionJob, inbox: _Inbox) -> dict[str, Any]:
    try:
        return {"compacted": _compacted(job, inbox)}
    except StorageError as error:
        return {
            "failed": {
                "kind": "storage",
                "path": str(error.path),
                "reason": str(error).removeprefix(f"{error.path}: "),
                "is_full": error.may_heal,
                "is_missing": error.is_missing,
            }
        }
    except PassStopped:
        return {"failed": {"kind": "stopped", "reason": ""}}
    except DAMAGED as damage:
        return {"failed": {"kind": "damaged", "reason": str(damage)}}
    except Exception:  # noqa: BLE001 - told to our parent, which logs it
        return {"failed": {"kind": "bug", "reason": traceback.format_exc()}}


def _compacted(job: CompactionJob, inbox: _Inbox) -> Compacted:
    throttle = Throttle(job.bytes_per_second, time.monotonic)
    steps = compact(DiskFiles(), job)
    since = 0
    try:
        while True:
            step = next(steps)
            if isinstance(step, Rewritten):
                _send({"rewritten": step})
                if inbox.line() != "go":
                    raise PassStopped
                continue
            since += step.byte_count
            if since >= _LOOK_BYTES:
                wait_s, since = throttle.wait_s(since), 0
                if inbox.has_more(wait_s) and inbox.line() == "stop":
                    raise PassStopped
    except StopIteration as done:
        compacted: Compacted = done.value
        return compacted
    finally:
        steps.close()


if __name__ == "__main__":
    main()

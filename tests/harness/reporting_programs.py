"""Programs that go on while nodes die and print, a JSON value a line, what was acknowledged."""

from __future__ import annotations

import json
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

_END_S = 240.0


class Reports(ABC):
    """Reads what a process prints, in a thread of its own; the end of a ``with`` ends it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.refused: list[str] = []
        """What the process says went wrong, in its words."""
        self._process = process
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @abstractmethod
    def take(self, found: Mapping[str, Any]) -> None:
        """One value that was printed."""

    def ask_to_end(self) -> None:
        """Tell the process that it is over: close its input, or terminate it if it has none."""
        if self._process.stdin is None:
            self._process.terminate()
        else:
            self._process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ask_to_end()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(_END_S)
        said = self._process.stderr.read() if self._process.stderr is not None else ""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        if error is None:
            assert self._failure is None, self._failure
            assert self._process.returncode in (0, 143), said  # 143: Java's word for SIGTERM

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self.take(json.loads(line))
        except BaseException as failure:  # noqa: BLE001 - raised again in the test's thread
            self._failure = failure


class GoProducer(Reports):
    """The command produce-on of a Go client."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        """Partition and offset of every value that was acknowledged."""
        super().__init__(process)

    def take(self, found: Mapping[str, Any]) -> None:
        if found["error"]:
            self.refused.append(found["error"])
        else:
            place = found["partition"], found["offset"]
            self.acknowledged[found["value"].encode()] = place


class GoCommitter(Reports):
    """The command commit-on of a Go client; a commit that fails may have been kept or not."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.acknowledged = self.sent = -1
        super().__init__(process)

    def take(self, found: Mapping[str, Any]) -> None:
        self.sent = found["offset"]
        if found["error"]:
            self.refused.append(found["error"])
        else:
            self.acknowledged = self.sent


class VerifiableProducer(Reports):
    """Kafka's program of that name."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        """Partition and offset of every value that was acknowledged."""
        super().__init__(process)

    def take(self, found: Mapping[str, Any]) -> None:
        if found["name"] == "producer_send_success":
            place = found["partition"], found["offset"]
            self.acknowledged[found["value"].encode()] = place
        elif found["name"] == "producer_send_error":
            self.refused.append(str(found))


class VerifiableConsumer(Reports):
    """Kafka's program of that name: a member of a group that commits after every poll."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.read: set[tuple[int, int]] = set()
        """Partition and offset of every record that it has seen."""
        self.committed: dict[int, int] = {}
        """The last offset that was committed, by partition."""
        self.went_back: list[str] = []
        """Commits acknowledged of less than an earlier one."""
        super().__init__(process)

    def take(self, found: Mapping[str, Any]) -> None:
        if found["name"] == "record_data":
            self.read.add((found["partition"], found["offset"]))
        elif found["name"] == "offsets_committed":
            if found["success"]:
                for offset in found["offsets"]:
                    self._commit(offset["partition"], offset["offset"])
            else:
                self.refused.append(str(found))

    def _commit(self, partition: int, offset: int) -> None:
        before = self.committed.get(partition, 0)
        if offset < before:
            self.went_back.append(f"{partition}: {before} -> {offset}")
        self.committed[partition] = offset

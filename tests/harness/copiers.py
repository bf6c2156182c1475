"""Copiers: programs around clients that others wrote, members of a group that copies a topic.

Each copy is a transaction with the group's offsets in it. A copier makes the steps it is told:
"copy" reads, writes and commits, "abort" aborts what it wrote, "open" leaves the transaction open,
and "end" commits that. It leaves its group when its input ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.console.development.java import find_java
from benchmarks.apache_kafka import class_path
from benchmarks.download_cache import CACHE, fetched

from .go_programs import SOURCES, built
from .needs import apache_kafka_jars, maven_jars, program

_WAIT_S: Final = 240.0
_ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class CopyTask:
    """What a copier copies, as whom."""

    bootstrap: str
    source: str
    target: str
    group: str
    producer: str
    """Its transactional id, or what those of its partitions begin with."""
    balancer: str = "range"


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copier did at an order."""

    assigned: frozenset[int]
    read: int
    is_committed: bool
    transactional_id: str
    error: str


@dataclass(frozen=True, slots=True)
class CopierKind:
    """One client; ``command`` is a program with its arguments, given what to do and a task."""

    name: str
    command: Callable[[str, CopyTask], Sequence[str]]
    fenced: str
    """Matches what the client says of a producer that was fenced."""

    def start(self, task: CopyTask) -> Copier:
        return Copier(_spawned(self.command("copy", task)))

    def fence(self, task: CopyTask) -> None:
        """Take the transactional id over, and abort a transaction of its new producer."""
        process = _spawned(self.command("fence", task))
        _, errors = process.communicate(timeout=_WAIT_S)
        assert process.returncode == 0, errors


class Copier:
    """A process that copies when it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.assigned: frozenset[int] = frozenset()

    def do(self, order: str) -> Copied:
        """One step; it may well find nothing to read."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(self._process.communicate()[1])
        found = json.loads(line)
        self.assigned = frozenset(found["assigned"] or ())
        return Copied(self.assigned, found["read"], found["committed"], found["id"], found["error"])

    def close(self) -> None:
        """Leave the group in order."""
        _, errors = self._process.communicate(timeout=_WAIT_S)
        assert self._process.returncode == 0, errors

    def kill(self) -> None:
        """End as ``kill -9`` does."""
        self._process.kill()
        self._process.communicate()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None


def _spawned(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _go(name: str) -> Callable[[str, CopyTask], Sequence[str]]:
    def command(what: str, task: CopyTask) -> Sequence[str]:
        given = {
            "Bootstrap": task.bootstrap,
            "Topic": task.source,
            "Target": task.target,
            "Group": task.group,
            "Id": task.producer,
            "Balancer": task.balancer,
        }
        return [str(built() / name), what, json.dumps(given)]

    return command


FRANZ_COPIER: Final = CopierKind("franz-go", _go("franz"), "PRODUCER_FENCED|INVALID_PRODUCER_EPOCH")

SARAMA_COPIER: Final = CopierKind("sarama", _go("sarama"), "newer producer|fenced|code = 90")
"""sarama has no name for PRODUCER_FENCED, 90."""


def _java(version: str) -> CopierKind:
    def command(what: str, task: CopyTask) -> Sequence[str]:
        named = (task.bootstrap, task.source, task.target, task.group, task.producer)
        jars = apache_kafka_jars() if version < "4" else maven_jars("kafka-clients", version)
        path = f"{_compiled(version, jars)}:{class_path(jars)}"
        java = [str(find_java()), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [*java, "-cp", path, _JAVA.stem, what, *named, task.balancer]

    return CopierKind(f"java-{version}", command, "ProducerFenced|InvalidProducerEpoch")


def _compiled(version: str, jars: Path) -> Path:
    """The folder of the program's classes, made once for each state of its source."""
    javac = program("javac", package="default-jdk-headless")
    tag = hashlib.sha256(_JAVA.read_bytes()).hexdigest()[:16]

    def build(beside: Path) -> None:
        subprocess.run([javac, "-cp", class_path(jars), "-d", str(beside), str(_JAVA)], check=True)

    return fetched(CACHE / f"java-copier-{version}-{tag}", f"{_JAVA.stem}.class", build)


_JAVA: Final = SOURCES.parent / "matrix" / "JavaCopier.java"
JAVA_COPIERS: Final = (_java("3.9.1"), _java("4.4.0"))


def _aiokafka(what: str, task: CopyTask) -> Sequence[str]:
    named = (task.bootstrap, task.source, task.target, task.group, task.producer)
    return [sys.executable, str(SOURCES.parent / "matrix" / "aiokafka_copier.py"), what, *named]


AIOKAFKA_COPIER: Final = CopierKind("aiokafka", _aiokafka, "ProducerFenced")

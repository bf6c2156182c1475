"""Members of a group, each a process around another client, and a ledger of what they tell.

A member reads a topic, tells each record before it commits it, what it is about to commit and has
committed, and each partition that comes and goes, with the time of the machine; it leaves when its
input ends. ``tests/interop/matrix`` and ``tests/interop/go`` have the programs; that of franz-go
says nothing of its commits.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from barnabas.client.topology import TopicPartition
from barnabas.console.development.java import find_java
from benchmarks.apache_kafka import class_path

from .client_releases import PROGRAMS, ROOT
from .go_programs import built
from .group_verdict import Commit, passed_over, read_again
from .needs import maven_jars, program
from .ownership import Ownership

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
Places = Sequence[TopicPartition]
_WAIT_S: Final = 120.0
_JAVA_CLIENT: Final = "4.4.0"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a member reads, and how."""

    bootstrap: str
    group: str
    topic: str
    protocol: str = CONSUMER
    instance: str = ""
    assignor: str = ""
    slow_s: float = 0.0
    """So long it takes to give partitions up."""
    max_poll_ms: int = 300_000


class Ledger:
    """What all members of one group tell together."""

    def __init__(self, topic: str, journal: Path | None = None) -> None:
        """``journal``: where every line is kept as well, behind the name of who told it."""
        self.topic = topic
        self.ownership = Ownership()
        self._journal = journal
        self.reads: Counter[tuple[int, int]] = Counter()
        """How often each record was read, by partition and offset."""
        self.revoking: set[str] = set()
        """Who has ever begun to give partitions up."""
        self.errors: list[str] = []
        self.lost: list[str] = []
        """Who was told that its partitions are others' already."""
        self.commits: list[Commit] = []
        self.rebalance_s: dict[str, float] = {}
        """How long each may take to give partitions up."""
        self._committing: dict[str, tuple[float, dict[TopicPartition, int]]] = {}
        self._revoking_since: dict[str, float] = {}
        self._lock = threading.Lock()

    def note(self, owner: str, told: dict[str, Any]) -> None:
        """One line of a member."""
        with self._lock:
            self._keep(owner, told)
            handle = getattr(self, f"_note_{told['event']}", None)
            if handle is not None:
                places = [TopicPartition(self.topic, each) for each in told.get("partitions") or ()]
                handle(owner, told, places)

    def _keep(self, owner: str, told: dict[str, Any]) -> None:
        if self._journal is not None:
            with self._journal.open("a") as file:
                file.write(json.dumps({"owner": owner, **told}) + "\n")

    def _note_assigned(self, owner: str, told: dict[str, Any], places: Places) -> None:
        self.ownership.took(owner, places, told["at"])

    def _note_revoking(self, owner: str, told: dict[str, Any], places: Places) -> None:
        del places
        self.revoking.add(owner)
        self._revoking_since[owner] = told["at"]

    def _note_revoked(self, owner: str, told: dict[str, Any], places: Places) -> None:
        began = self._revoking_since.pop(owner, told["at"])
        if told["at"] - began >= self.rebalance_s.get(owner, math.inf):
            self.ownership.doubt(owner, began)
        self.ownership.gave(owner, places, told["at"])

    def _note_lost(self, owner: str, told: dict[str, Any], places: Places) -> None:
        self._revoking_since.pop(owner, None)
        self.ownership.lost(owner, places, told["at"])
        self.lost += [owner] if places else []

    def _note_read(self, owner: str, told: dict[str, Any], places: Places) -> None:
        del places
        self.reads.update((partition, offset) for partition, offset in told["records"])
        for partition, offset in told["records"]:
            place = TopicPartition(self.topic, partition)
            self.ownership.read(owner, place, offset, told["at"])

    def _note_error(self, owner: str, told: dict[str, Any], places: Places) -> None:
        del places
        self.errors.append(f"{owner}: {told['text']}")

    def _note_committing(self, owner: str, told: dict[str, Any], places: Places) -> None:
        del places
        self._settle_commit(owner, (), math.inf)
        ends = {TopicPartition(self.topic, each): offset for each, offset in told["ends"]}
        self._committing[owner] = (told["at"], ends)

    def _note_committed(self, owner: str, told: dict[str, Any], places: Places) -> None:
        self._settle_commit(owner, places, told["at"])

    def _settle_commit(self, owner: str, stored: Places, ended: float) -> None:
        """What the member said that it was about to commit has had an outcome, or never will."""
        if owner not in self._committing:
            return
        began, ends = self._committing.pop(owner)
        self.ownership.proved(owner, stored, began)
        for place, offset in ends.items():
            at = ended if place in stored else math.inf
            self.commits.append(Commit(owner, place, offset, began, at))

    def is_revoking(self, owner: str) -> bool:
        """Whether a member is giving partitions up just now."""
        with self._lock:
            return owner in self._revoking_since

    def froze(self, owner: str) -> None:
        """A member is about to be frozen: it may be fenced without knowing."""
        with self._lock:
            at = time.time()
            self._keep(owner, {"event": "frozen", "at": at})
            self.ownership.doubt(owner, at)

    def ended(self, owner: str) -> None:
        """A member is no more; what it has still it had until now, at most."""
        with self._lock:
            self._settle_commit(owner, (), math.inf)
            self._revoking_since.pop(owner, None)
            at = time.time()
            self._keep(owner, {"event": "ended", "at": at})
            self.ownership.died(owner, at)

    def findings(self) -> list[str]:
        """Everything that must not be, of members that tell their commits; asked at the end."""
        with self._lock:
            found = [
                f"{double.partition} was both {double.first}'s and {double.second}'s "
                f"at {double.at:.3f}"
                for double in self.ownership.doubles()
            ]
            found += read_again(self.ownership, self.commits)
            found += passed_over(self.ownership, self.commits)
            return found + self.ownership.leaps

    def owned(self) -> dict[str, set[int]]:
        """The partitions of each member that has any, now."""
        with self._lock:
            found: dict[str, set[int]] = {}
            for place, owner in self.ownership.owners().items():
                found.setdefault(owner, set()).add(place.partition)
            return found

    def read(self) -> int:
        """How many records were read, once or more often."""
        with self._lock:
            return len(self.reads)

    def repeated(self) -> dict[tuple[int, int], int]:
        """Records that were read more than once, and how often."""
        with self._lock:
            return {record: times for record, times in self.reads.items() if times > 1}


class Member:
    """One process; its lines go to the ledger as they come."""

    def __init__(self, name: str, command: Sequence[str], ledger: Ledger) -> None:
        self.name = name
        self._ledger = ledger
        self._process = subprocess.Popen(
            command,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._complaints: list[str] = []
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._listen, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def owns(self) -> set[int]:
        """The partitions that it has now."""
        return self._ledger.owned().get(self.name, set())

    @property
    def has_ended(self) -> bool:
        """Whether it has left, or was killed."""
        return self._process.returncode is not None

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._process.poll() is None

    def pause(self) -> None:
        """Freeze it; others may have its partitions when it goes on."""
        self._ledger.froze(self.name)
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on, as if nothing had happened."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Leave the group in order."""
        self.ask_to_leave()
        self.wait_left()

    def ask_to_leave(self) -> None:
        """Have it leave, without waiting for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait_left(self) -> None:
        """Return when it has left."""
        code = self._process.wait(_WAIT_S)
        self._join()
        assert code == 0, "".join(self._complaints)

    def kill(self) -> None:
        """End as ``kill -9`` does; twice is allowed."""
        self._process.kill()
        self._process.wait(_WAIT_S)
        self._join()

    def _join(self) -> None:
        for thread in self._threads:
            thread.join(_WAIT_S)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        self._ledger.ended(self.name)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{") and line.endswith("}\n"):
                self._ledger.note(self.name, json.loads(line))

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._complaints.append(line)


@dataclass(frozen=True)
class MemberKind:
    """One client; ``command`` is its program with all that it is given."""

    name: str
    command: Callable[[Task], Sequence[str]]

    def start(self, name: str, task: Task, ledger: Ledger) -> Member:
        """A new member under a name of the test's; skips where its program cannot run."""
        ledger.rebalance_s[name] = task.max_poll_ms / 1000
        return Member(name, self.command(task), ledger)


def _python(script: str) -> Callable[[Task], Sequence[str]]:
    return lambda task: [sys.executable, str(PROGRAMS / script), json.dumps(asdict(task))]


def _java(task: Task) -> Sequence[str]:
    program("javac", package="default-jdk-headless")
    jars = maven_jars("kafka-clients", _JAVA_CLIENT)
    flags = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    given = [task.bootstrap, task.group, task.topic, task.protocol, task.instance, task.assignor]
    given += [str(task.slow_s), str(task.max_poll_ms)]
    java = [str(find_java()), *flags, "-cp", class_path(jars)]
    return [*java, str(PROGRAMS / "JavaMember.java"), *given]


def _franz(task: Task) -> Sequence[str]:
    given = {
        "Bootstrap": task.bootstrap,
        "Group": task.group,
        "Topic": task.topic,
        "Protocol": task.protocol,
        "Instance": task.instance,
        "SlowMs": int(task.slow_s * 1000),
        "MaxPollMs": task.max_poll_ms,
    }
    return [str(built() / "franz"), "member", json.dumps(given)]


OWN: Final = MemberKind("barnabas", _python("own_member.py"))
CONFLUENT: Final = MemberKind("librdkafka", _python("confluent_member.py"))
JAVA: Final = MemberKind("java", _java)
FRANZ: Final = MemberKind("franz-go", _franz)
KINDS: Final = (OWN, CONFLUENT, JAVA, FRANZ)

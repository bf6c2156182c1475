"""franz-go and sarama as two of the clients that others wrote: programs of ours around them.

A command gets JSON and prints JSON; tests/interop/go/lines says what goes in and out.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from .go_programs import NEWEST, built
from .records import GroupDescription, Received, Sent

_BEGINNING: Final = -2
_WAIT_S: Final = 240.0


class GoClient:
    """Implements ClientLibrary; ``version`` is the Kafka that sarama is to expect.

    ``release`` is that of the client: see go_programs.py.
    """

    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, name: str, program: str, version: str = "", release: str = NEWEST) -> None:
        self.name = name
        self._release = release
        self._program = program
        self._version = version

    def create_topic(self, bootstrap: str, topic: str, partitions: int, factor: int = 1) -> None:
        """Create a topic; ``factor`` is the number of its replicas."""
        self.run("create", bootstrap, Topic=topic, Partitions=partitions, Factor=factor)

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str = "none"
    ) -> None:
        text = json.dumps([_sent(record) for record in records])
        self.run("produce", bootstrap, text, Topic=topic, Codec=codec)

    def join(
        self, bootstrap: str, group: str, topic: str, balancer: str = "range", instance: str = ""
    ) -> GoMember:
        """A new member; ``instance`` makes it a static one."""
        given = {"Group": group, "Topic": topic, "Balancer": balancer, "Instance": instance}
        return GoMember(self.start("join", bootstrap, **given))

    def groups(self, bootstrap: str) -> set[str]:
        (names,) = self.run("groups", bootstrap)
        return set(names)

    def describe_group(self, bootstrap: str, group: str) -> GroupDescription:
        found = self._described(bootstrap, group)
        return GroupDescription(found["state"], found["protocol"], found["member_count"])

    def static_members(self, bootstrap: str, group: str) -> set[str]:
        """The names of a group's static members."""
        return set(self._described(bootstrap, group)["instances"])

    def remove_static_member(self, bootstrap: str, group: str, instance: str) -> None:
        """Throw a static member out of its group; franz-go only."""
        self.run("remove", bootstrap, Group=group, Instance=instance)

    def committed(self, bootstrap: str, group: str) -> dict[int, int]:
        (found,) = self.run("committed", bootstrap, Group=group)
        return _by_partition(found)

    def commit(self, bootstrap: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit for a group from outside, as administrators do."""
        self.run("commit", bootstrap, Group=group, Topic=topic, Offsets=offsets)

    def delete_records(
        self, bootstrap: str, topic: str, before: Mapping[int, int]
    ) -> dict[int, int]:
        """Delete what is before an offset of each partition; returns the new starts."""
        (found,) = self.run("delete-records", bootstrap, Topic=topic, Offsets=before)
        return _by_partition(found)

    def offsets_at(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int
    ) -> tuple[int, int, int | None]:
        at: dict[str, Any] = {"Topic": topic, "Partition": partition, "TimestampMs": timestamp_ms}
        ((first, end, found),) = self.run("offsets", bootstrap, **at)
        return first, end, found if found >= 0 else None

    def read(self, bootstrap: str, topic: str, starts: Mapping[int, int | str]) -> list[Received]:
        offsets = {
            partition: start if isinstance(start, int) else _BEGINNING
            for partition, start in starts.items()
        }
        found = self.run("read", bootstrap, Topic=topic, Starts=offsets)
        return [_received(record) for record in found]

    def calls(self, bootstrap: str, topic: str, group: str) -> dict[str, str]:
        """What came of every call of the admin client; an empty text is a success."""
        (table,) = self.run("calls", bootstrap, Topic=topic, Group=group)
        return {row["call"]: row["error"] for row in table}

    def run(self, command: str, bootstrap: str, text: str = "", **given: object) -> list[Any]:
        """Every line that a command prints; fails with what it says when it fails."""
        done = subprocess.run(
            self._argv(command, bootstrap, given),
            input=text,
            capture_output=True,
            text=True,
            timeout=_WAIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{self.name} {command}: {done.stderr}"
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, command: str, bootstrap: str, **given: object) -> subprocess.Popen[str]:
        """A command that goes on until its input is closed."""
        argv = self._argv(command, bootstrap, given)
        return subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def _argv(self, command: str, bootstrap: str, given: Mapping[str, object]) -> list[str]:
        arguments = {"Bootstrap": bootstrap, "Version": self._version, **given}
        return [str(built(self._release) / self._program), command, json.dumps(arguments)]

    def _described(self, bootstrap: str, group: str) -> Any:
        (found,) = self.run("describe", bootstrap, Group=group)
        return found


class GoMember:
    """Implements GroupMember: a process that polls when it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._assigned: set[int] = set()

    def poll(self) -> list[Received]:
        return [_received(record) for record in self._ask("poll")["records"] or ()]

    def assigned(self) -> set[int]:
        return self._assigned

    def commit(self) -> None:
        self._ask("commit")

    def close(self) -> None:
        """Leave the group; a static member only ends."""
        _, errors = self._process.communicate(timeout=_WAIT_S)
        assert self._process.returncode == 0, errors

    def kill(self) -> None:
        """End the process as ``kill -9`` does."""
        self._process.kill()
        self._process.communicate()

    def _ask(self, order: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise AssertionError(self._process.communicate()[1])
        found = json.loads(answer)
        assert not found["error"], found["error"]
        self._assigned = set(found["assigned"])
        return found


FRANZ: Final = GoClient("franz-go", "franz")
SARAMA: Final = GoClient("sarama", "sarama")
GO_CLIENTS: Final = (FRANZ, SARAMA)


class Balanced:
    """Implements ClientLibrary: franz-go or sarama with one way to share partitions."""

    def __init__(self, client: GoClient, balancer: str) -> None:
        self.name = f"{client.name}-{balancer}"
        self.codecs = client.codecs
        self.join: Callable[[str, str, str], GoMember] = lambda bootstrap, group, topic: (
            client.join(bootstrap, group, topic, balancer)
        )
        self.create_topic = client.create_topic
        self.produce = client.produce
        self.groups = client.groups
        self.describe_group = client.describe_group
        self.committed = client.committed
        self.offsets_at = client.offsets_at
        self.read = client.read


def _sent(record: Sent) -> dict[str, object]:
    return {
        "value": _text(record.value),
        "key": _text(record.key),
        "headers": [{"name": name, "value": _text(value)} for name, value in record.headers],
        "partition": -1 if record.partition is None else record.partition,
        "timestamp_ms": -1 if record.timestamp_ms is None else record.timestamp_ms,
    }


def _received(found: Mapping[str, Any]) -> Received:
    return Received(
        found["partition"],
        found["offset"],
        _bytes(found["value"]),
        _bytes(found["key"]),
        tuple((header["name"], _bytes(header["value"])) for header in found["headers"] or ()),
        found["timestamp_ms"],
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _by_partition(found: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in found.items()}

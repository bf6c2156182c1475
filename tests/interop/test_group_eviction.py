"""``groups reset --evict``: Go clients as members, undo beside them, and what is said of it.

test_live_reset.py has the other clients.

BARNABAS_INTEROP_SERVER=kafka runs all of it against Apache Kafka 3.9 as well.
Source: docs/spec/console.md §2.4.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.harness.client_libraries import ClientLibrary, GroupMember
from tests.harness.confluent_client import Confluent, ConfluentMember
from tests.harness.go_clients import FRANZ, SARAMA, Balanced
from tests.harness.group_shell import PARTITIONS, RECORDS, GroupShell
from tests.harness.kafka_python_client import KafkaPython
from tests.harness.own_client import Own
from tests.harness.records import Received, Sent
from tests.harness.waiting import eventually

EVERY = PARTITIONS * RECORDS
TOLD_ONCE = (
    "unable to join group session: UNKNOWN_MEMBER_ID",  # franz-go
    "The provided member is not known in the current generation",  # sarama
)


def consumer_of(bootstrap: str, group: str, topic: str, **settings: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    consumer.subscribe([topic])
    return consumer


LIBRARIES: tuple[tuple[str, ClientLibrary], ...] = (
    ("ours-cooperative", Own(("cooperative-sticky",))),
    ("franz-go-cooperative", Balanced(FRANZ, "cooperative")),
    ("sarama", Balanced(SARAMA, "range")),
)


class Reader(threading.Thread):
    """Polls and commits until told to end, as an application does; keeps what it has read."""

    def __init__(self, member: GroupMember) -> None:
        super().__init__(daemon=True)
        self.read: list[Received] = []
        self.failures: list[str] = []
        self._member = member
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.is_set():
            found = self._polled()
            self.read += found
            if found:
                try:
                    self._member.commit()
                except Exception as error:  # noqa: BLE001 - what an application would log
                    self.failures.append(repr(error))

    def _polled(self) -> list[Received]:
        """Go clients may tell their application once what happened, as a failed fetch."""
        try:
            return self._member.poll()
        except AssertionError as failure:
            if not any(told in str(failure) for told in TOLD_ONCE):
                raise
            self.failures.append(str(failure))
            return []

    def end(self) -> None:
        self._is_over.set()
        self.join(120)
        self._member.close()


@pytest.fixture
def reading(
    request: pytest.FixtureRequest, groups: GroupShell, filled: str, group: str
) -> Iterator[Reader]:
    """A live group of one member that has read and committed everything."""
    library: ClientLibrary = request.param
    reader = Reader(library.join(groups.bootstrap, group, filled))
    reader.start()
    try:
        eventually(lambda: len(reader.read) >= EVERY, within_s=120, what="everything is read")
        eventually(lambda: set(groups.committed(group).values()) == {RECORDS}, within_s=120)
        yield reader
    finally:
        reader.end()


EACH = pytest.mark.parametrize(
    "reading",
    [library for _, library in LIBRARIES],
    ids=[name for name, _ in LIBRARIES],
    indirect=True,
)
ONE = pytest.mark.parametrize("reading", [Confluent()], ids=["librdkafka"], indirect=True)


@EACH
def test_a_live_group_reads_again_from_where_it_is_set(
    groups: GroupShell, filled: str, group: str, reading: Reader
) -> None:
    before = len(reading.read)
    told = groups.json(
        "reset", group, "--topic", filled, "--to-offset", "3", "--evict", "--execute"
    )
    assert told["executed"]
    assert [change["error"] for change in told["changes"]] == [None, None]
    assert "members are back" in groups.told
    again = PARTITIONS * (RECORDS - 3)
    eventually(lambda: len(reading.read) >= before + again, within_s=120, what="it reads again")
    found = reading.read[before:]
    assert {(one.partition, one.offset) for one in found} == {
        (partition, offset) for partition in range(PARTITIONS) for offset in range(3, RECORDS)
    }
    eventually(lambda: set(groups.committed(group).values()) == {RECORDS}, within_s=120)


@ONE
def test_the_plan_names_who_is_removed_and_changes_nothing(
    groups: GroupShell, filled: str, group: str, reading: Reader
) -> None:
    shown = groups("reset", group, "--topic", filled, "--to-offset", "3", "--evict")
    assert "replays" in shown
    assert f"Takes 1 member out of group '{group}'" in groups.told
    assert "dry run: nothing was changed; --execute does it" in groups.told
    groups("reset", group, "--topic", filled, "--to-offset", "3", "--execute", code=1)
    assert "Assignments can only be reset if the group" in groups.told
    assert set(groups.committed(group).values()) == {RECORDS}
    assert len(reading.read) == EVERY
    assert groups.json("describe", group, "--state")[0]["state"] == "Stable"


@ONE
def test_an_eviction_is_undone_by_its_file_while_the_group_is_live(
    groups: GroupShell, filled: str, group: str, reading: Reader
) -> None:
    back = ("--topic", filled, "--to-offset", "3", "--evict", "--execute")
    told = groups.json("reset", group, *back, "--undo-file", "undo.json", "--reason", "bug 12")
    assert Path(told["undo_file"]).exists()
    eventually(lambda: set(groups.committed(group).values()) == {RECORDS}, within_s=120)
    groups("undo", "undo.json", "--evict", "--execute")
    assert set(groups.committed(group).values()) == {RECORDS}


@ONE
def test_a_reset_that_skips_is_undone_while_the_group_is_live(
    groups: GroupShell, filled: str, group: str, reading: Reader
) -> None:
    Confluent().produce(groups.bootstrap, filled, [Sent(b"y", partition=0)] * 5)
    eventually(lambda: groups.committed(group)[filled, 0] == RECORDS + 5, within_s=120)
    to = ("reset", group, "--topic", f"{filled}:0", "--to-offset", "2", "--evict", "--execute")
    groups(*to, "--undo-file", "undo.json")
    eventually(lambda: groups.committed(group)[filled, 0] == RECORDS + 5, within_s=120)
    change = json.loads(Path("undo.json").read_text())
    change["changes"][0]["old"]["offset"] = 7
    Path("other.json").write_text(json.dumps(change))
    groups("undo", "other.json", "--execute", code=1)
    assert "Assignments can only be reset if the group" in groups.told
    groups("undo", "other.json", "--evict", "--execute", code=1)
    assert "has moved on since" in groups.told
    before = len(reading.read)
    groups("undo", "other.json", "--evict", "--force", "--execute", "--undo-file", "redo.json")
    eventually(lambda: len(reading.read) >= before + RECORDS + 5 - 7, within_s=120)


def test_a_static_member_is_removed_and_comes_back(
    groups: GroupShell, filled: str, group: str
) -> None:
    static = {"group.instance.id": "till-1"}
    reader = Reader(ConfluentMember(consumer_of(groups.bootstrap, group, filled, **static)))
    reader.start()
    try:
        eventually(lambda: len(reader.read) >= EVERY, within_s=120)
        before = len(reader.read)
        dry = groups("reset", group, "--all-topics", "--to-earliest", "--evict")
        assert "replays" in dry
        groups("reset", group, "--all-topics", "--to-earliest", "--evict", "--execute")
        eventually(lambda: len(reader.read) >= before + EVERY, within_s=120, what="read again")
    finally:
        reader.end()


def test_an_empty_group_is_reset_as_without_the_option(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [4, 6])
    groups("reset", group, "--topic", filled, "--to-offset", "5", "--evict", "--execute")
    assert groups.committed(group) == {(filled, 0): 5, (filled, 1): 5}
    assert "Takes" not in groups.told


def test_members_that_never_come_back_are_told(groups: GroupShell, filled: str, group: str) -> None:
    member = KafkaPython().join(groups.bootstrap, group, filled)
    eventually(lambda: member.poll() or len(member.assigned()) > 0, within_s=120)
    member.close()
    eventually(
        lambda: Confluent().describe_group(groups.bootstrap, group).state == "Empty",
        what="the member has left",
    )
    groups.commit(group, filled, [1, 1])
    groups("reset", group, "--topic", filled, "--to-latest", "--evict", "--execute")
    assert set(groups.committed(group).values()) == {RECORDS}

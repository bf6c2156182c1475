"""``barnabas groups barrier`` says when a group has read what was there (docs/spec/console.md §1).

BARNABAS_INTEROP_SERVER=kafka runs all of it against Apache Kafka 3.9 as well.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.harness.confluent_client import Confluent
from tests.harness.group_shell import GroupShell
from tests.harness.own_client import Own
from tests.harness.records import Sent
from tests.harness.waiting import eventually


def test_a_group_that_is_behind_has_not_passed_and_then_has(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [10, 4])
    rows = groups.rows("barrier", group, code=1)
    assert rows == [
        [group, filled, "0", "10", "10", "0", "passed"],
        [group, filled, "1", "10", "4", "6", "waiting"],
    ]
    assert "1 of 2 partitions have passed it; 6 offsets are left" in groups.told
    groups.commit(group, filled, [10, 10])
    assert groups.json("barrier", group)["passed"]
    assert groups.json("barrier", group, "--topic", f"{filled}:1")["partitions"] == [
        {
            "topic": filled, "partition": 1, "barrier": 10, "committed": 10, "needs": 0,
            "passed": True,
        }
    ]  # fmt: skip


def test_a_barrier_that_was_set_stays_where_it_was(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [10, 4])
    Path("barrier.csv").write_text(groups("barrier", group, "--export"))
    assert Path("barrier.csv").read_text() == f"{filled},0,10\n{filled},1,10\n"
    Own().produce(groups.bootstrap, filled, [Sent(b"more", partition=0)])
    groups.commit(group, filled, {1: 10})
    assert groups.json("barrier", group, "--from-file", "barrier.csv")["passed"]
    assert not groups.json("barrier", group, code=1)["passed"]


def test_who_waits_is_told_when_a_member_has_passed_it(
    groups: GroupShell, filled: str, group: str
) -> None:
    member = Confluent().join(groups.bootstrap, group, filled)
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            if member.poll():
                member.commit()

    groups.commit(f"{group}-other", filled, [1, 1])
    groups("barrier", f"{group}-other", "--wait", "5", code=1)
    assert "waiting for 2 of 2 partitions" in groups.told
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        while not groups.json("describe", group, code=None):
            pass
        told = groups.json("barrier", group, "--topic", filled, "--wait", "120")
    finally:
        is_over.set()
        thread.join(60)
        member.close()
    assert told["passed"]


def test_what_is_only_a_marker_counts_as_read_and_open_transactions_are_left_out(
    groups: GroupShell, filled: str, group: str
) -> None:
    producer = Producer({"bootstrap.servers": groups.bootstrap, "transactional.id": group})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(filled, b"in a transaction", partition=0)
    producer.commit_transaction(120)
    groups.commit(group, filled, [11, 10])  # behind the record, in front of the marker

    def with_marker() -> Any:
        told = groups.json("barrier", group)
        return told if told["partitions"][0]["barrier"] == 12 else None

    told = eventually(with_marker, what="the marker, which follows the end of a transaction")
    assert told["passed"]
    producer.begin_transaction()
    producer.produce(filled, b"still open", partition=0)
    producer.flush()
    assert not groups.json("barrier", group, code=1)["passed"]
    assert groups.json("barrier", group, "--read-committed")["passed"]
    producer.abort_transaction(120)


def test_what_cannot_be_watched_is_said(groups: GroupShell, filled: str, group: str) -> None:
    groups("barrier", group, code=1)
    assert f"Consumer group '{group}' does not exist." in groups.told
    groups.commit(group, filled, [1])
    groups("barrier", group, "--topic", f"{filled}-none", code=1)
    assert f"topic '{filled}-none' does not exist" in groups.told
    groups("barrier", group, "--export", "--wait", "3", code=2)
    Path("other.csv").write_text(f"somebody,{filled},0,1\n")
    groups("barrier", group, "--from-file", "other.csv", code=1)
    assert f"other.csv is no barrier of {group}" in groups.told

"""What nodes note of themselves and of the cluster; what comes in crowds is one event."""

from __future__ import annotations

import asyncio
import json
import random
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.controller.failovers import Cause, Failover, Failovers
from barnabas.broker.coordination.change_records import ChangeRecords
from barnabas.broker.coordination.cluster_events import NAMES_MAX, ClusterEvents
from barnabas.protocol.audit_topic import parse_audit_value
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.events_topic import ClusterEvent, event_value, parse_event_value

NOW_MS = 1_795_000_000_000


class Kept:
    """Keeps what a journal is given."""

    def __init__(self) -> None:
        self.journal: Any = SimpleNamespace(add=lambda *entry: self.entries.append(entry))
        self.entries: list[tuple[bytes, bytes]] = []

    def events(self) -> list[ClusterEvent]:
        return [parse_event_value(value) for _, value in self.entries]


@pytest.fixture
def kept() -> Kept:
    return Kept()


def events(kept: Kept) -> ClusterEvents:
    return ClusterEvents(kept.journal, 3, lambda: NOW_MS)


async def test_a_failover_is_told_with_its_cause_and_phases(kept: Kept) -> None:
    failovers = Failovers()
    failovers.on_failover.append(events(kept).failed_over)
    failovers.note(
        Failover(
            node=2, cause=Cause.SILENT, noticed_s=0.51234, elected_s=0.04, partitions=17,
            leaderless=1,
        )
    )  # fmt: skip
    (event,) = kept.events()
    assert (event.node, event.time_ms, event.event) == (3, NOW_MS, "failover")
    assert event.fields == {
        "lost": 2,
        "cause": "silent",
        "noticed_s": 0.5123,
        "elected_s": 0.04,
        "partitions": 17,
        "leaderless": 1,
    }
    assert failovers.counts == {Cause.SILENT: 1}


async def test_changes_of_roles_are_folded_into_one_event_that_names_all_offsets_partitions(
    kept: Kept,
) -> None:
    told = events(kept)
    for index in range(50):
        told.elected("__consumer_offsets", index, 1)
        told.elected(f"topic-{index}", 0, 1)
    told.resigned("orders", 0, None)
    assert not kept.entries
    told.flush()
    told.flush()
    (event,) = kept.events()
    assert (event.fields["elected"], event.fields["resigned"]) == (100, 1)
    assert event.fields["offsets_elected"] == list(range(50))
    assert len(event.fields["topics"]) == NAMES_MAX


async def test_whose_settings_changed_is_told(kept: Kept) -> None:
    told = events(kept)
    told.topic_settings_changed("orders")
    told.group_settings_changed("billing")
    told.node_settings_changed()
    assert {event.event for event in kept.events()} == {"settings-changed"}
    assert [event.fields for event in kept.events()] == [
        {"topic": "orders"},
        {"group": "billing"},
        {"of_node": 3},
    ]


async def test_what_is_folded_is_told_by_itself_after_a_while(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.coordination.cluster_events.FOLD_S", 0.001)
    told = events(kept)
    told.elected("orders", 0, 1)
    while not kept.entries:  # noqa: ASYNC110 - each pass is one turn of the loop
        await asyncio.sleep(0)
    told.close()


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b"{}", b'{"version":1}', b'{"version":1,"time_ms":true,"node":1,"event":"x"}',
     b'{"version":1,"time_ms":1,"node":1,"event":2}', b"\xff"],
)  # fmt: skip
def test_what_is_no_event_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptRequest):
        parse_event_value(value)


def test_an_event_of_a_later_version_is_read_with_all_that_it_says() -> None:
    event = ClusterEvent(time_ms=1, node=2, event="of-later", fields={"a": [1]})
    later = event_value(event).replace(b'"version":1', b'"version":2')
    assert parse_event_value(later) == event


async def test_a_change_is_recorded_with_who_what_and_why(kept: Kept) -> None:
    records = ChangeRecords(kept.journal, lambda: NOW_MS, random.Random(1))
    parts = [{"topic": "orders", "code": 0, "settings": ["retention.ms"]}]
    records.note(
        "IncrementalAlterConfigs",
        "success",
        {
            "principal": "User:ann",
            "host": "10.0.0.1",
            "client_id": "barnabas-admin:c0ffee:disk full",
            "listener": "USERS",
            "parts": parts,
        },
    )
    ((key, value),) = kept.entries
    record = parse_audit_value(value)
    assert key == b"IncrementalAlterConfigs:orders"
    assert (record.action, record.topic, record.group) == ("IncrementalAlterConfigs", "orders", "")
    assert (record.principal, record.change, record.reason) == ("User:ann", "c0ffee", "disk full")
    assert json.loads(record.what) == {"result": "success", "parts": parts}
    assert hash(record) == hash(parse_audit_value(value))


async def test_a_change_without_a_tool_has_a_name_of_its_own(kept: Kept) -> None:
    records = ChangeRecords(kept.journal, lambda: NOW_MS, random.Random(1))
    for _ in range(2):
        records.note("DeleteTopics", "failure", {"parts": [{"topic": "a"}, {"topic": "b"}]})
    first, second = (parse_audit_value(value) for _, value in kept.entries)
    assert first.change != second.change
    assert first.topic == ""

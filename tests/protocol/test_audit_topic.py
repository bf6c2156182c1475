"""Records of __barnabas_audit (docs/spec/coordinator.md §3.8): written once, read by anybody."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.audit_topic import (
    ACTIONS,
    REASON_CHARACTERS_MAX,
    AuditRecord,
    audit_key,
    audit_value,
    parse_audit_value,
    parse_tool_client_id,
    tool_client_id,
)
from barnabas.protocol.errors import CorruptRequest

RECORD = AuditRecord(
    time_ms=1_700_000_000_000,
    action="commit",
    change="5f0c2a",
    principal="User:ANONYMOUS",
    host="127.0.0.1",
    client_id="barnabas-admin:5f0c2a:reset --to-earliest",
    group="billing",
    topic="orders",
    partition=3,
    old_offset=42,
    old_leader_epoch=7,
    old_metadata="",
    new_offset=None,
    new_leader_epoch=-1,
    new_metadata="",
    reason="reset --to-earliest",
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def test_a_record_is_one_json_object_with_every_field() -> None:
    found = json.loads(audit_value(RECORD))
    told = asdict(RECORD)
    assert told.pop("what") == ""
    assert found == {"version": 1, **told}
    assert audit_key("billing") == b"billing"


@given(
    st.builds(
        AuditRecord,
        time_ms=st.integers(0, 2**53),
        action=st.sampled_from(sorted(ACTIONS)),
        change=TEXTS,
        principal=TEXTS,
        host=TEXTS,
        client_id=TEXTS,
        group=TEXTS,
        topic=TEXTS,
        partition=st.integers(0, 2**31 - 1),
        old_offset=st.none() | st.integers(-(2**63), 2**63 - 1),
        old_leader_epoch=st.integers(-1, 2**31 - 1),
        old_metadata=TEXTS,
        new_offset=st.none() | st.integers(-(2**63), 2**63 - 1),
        new_leader_epoch=st.integers(-1, 2**31 - 1),
        new_metadata=TEXTS,
        reason=TEXTS,
    )
)
def test_a_record_that_was_written_is_read_again(record: AuditRecord) -> None:
    assert parse_audit_value(audit_value(record)) == record


def test_what_a_later_version_adds_is_ignored() -> None:
    later = {"version": 2, **asdict(RECORD), "colour": "blue"}
    assert parse_audit_value(json.dumps(later).encode()) == RECORD


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"[" * 100_000,
        b'{"version":1' + b"0" * 5_000 + b"}",
        b"{}",
        b'{"version":0}',
        b'{"version":true}',
        b'{"version":1}',
        audit_value(replace(RECORD, partition=3)).replace(b'"partition":3', b'"partition":"3"'),
        audit_value(RECORD).replace(b'"old_offset":42', b'"older":42'),
        audit_value(RECORD).replace(b'"old_offset":42', b'"old_offset":4.2'),
        audit_value(RECORD).replace(b'"group":"billing"', b'"group":null'),
    ],
)
def test_a_value_that_is_no_record_is_told(value: bytes) -> None:
    with pytest.raises(CorruptRequest):
        parse_audit_value(value)


@given(st.binary() | st.text().map(str.encode))
def test_no_bytes_do_any_harm(value: bytes) -> None:
    with contextlib.suppress(CorruptRequest):
        parse_audit_value(value)


def test_a_tool_says_its_change_and_reason_in_its_client_id() -> None:
    client_id = tool_client_id("5f0c", "reset: after\nbug 12")
    assert client_id == "barnabas-admin:5f0c:reset: after bug 12"
    assert parse_tool_client_id(client_id) == ("5f0c", "reset: after bug 12")
    assert parse_tool_client_id("barnabas-admin") == ("", "")
    assert parse_tool_client_id("consumer-1") is None


def test_an_overlong_reason_is_cut() -> None:
    told = parse_tool_client_id(tool_client_id("a", "x" * 100_000))
    assert told is not None
    assert len(told.reason) == REASON_CHARACTERS_MAX

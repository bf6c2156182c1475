"""Golden bodies, changed at random, are read or refused as CorruptRequest: nothing else happens.

``BARNABAS_FUZZ_EXAMPLES`` sets how many are tried for each message (a night takes 100000).
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol import consumer_protocol, frame, offsets_topic
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.errors import CorruptRequest
from tests.protocol.golden import document, kafka_bodies

CLASSES = sorted(kafka_bodies(), key=lambda found: found.__name__)
EXAMPLES = int(os.environ.get("BARNABAS_FUZZ_EXAMPLES", "30"))
PATIENT = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


def spoilt(drawn: Any, original: bytes) -> bytes:
    """The original after a few cuts, insertions and overwritten places."""
    changed = bytearray(original)
    for _ in range(drawn.draw(st.integers(1, 4))):
        start = drawn.draw(st.integers(0, len(changed)))
        end = min(len(changed), start + drawn.draw(st.integers(0, 5)))
        changed[start:end] = drawn.draw(
            st.binary(max_size=5) | st.sampled_from((b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff"))
        )
    return bytes(changed)


@pytest.mark.parametrize("message_class", CLASSES, ids=lambda found: found.__name__)
@PATIENT
@given(data=st.data())
def test_a_spoilt_body_is_read_or_corrupt(message_class: type, data: Any) -> None:
    body = data.draw(st.sampled_from(kafka_bodies()[message_class]))
    changed = spoilt(data, body.data)
    try:
        message: object = decode(message_class, body.version, changed)
    except CorruptRequest:
        return
    again = encode(message, body.version)  # compared as bytes: NaN is not equal to itself
    assert encode(decode(message_class, body.version, again), body.version) == again


@PATIENT
@given(data=st.data())
def test_a_spoilt_frame_has_a_header_or_is_corrupt(data: Any) -> None:
    vector = data.draw(st.sampled_from(document("golden-protocol.json")["messages"]))
    changed = spoilt(data, bytes.fromhex(vector["frame_hex"])[4:])
    try:
        _, start = frame.parse_request_header(changed)
    except CorruptRequest:
        return
    assert start <= len(changed)


@PATIENT
@given(data=st.data())
def test_a_spoilt_offsets_record_is_read_or_corrupt(data: Any) -> None:
    vector = data.draw(st.sampled_from(document("golden-protocol.json")["records"]))
    changed = spoilt(data, bytes.fromhex(vector["hex"]))
    for parse in (
        offsets_topic.parse_key,
        offsets_topic.parse_offset_value,
        offsets_topic.parse_group_value,
        consumer_protocol.parse_subscription,
        consumer_protocol.parse_assignment,
    ):
        try:
            parse(changed)
        except CorruptRequest:
            continue

"""What is written is read back, for every version of every message."""

from __future__ import annotations

from collections.abc import Generator
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol.codec.compiler import (
    chunk_encoder,
    decode,
    encode,
    encoder_in_turns,
    request_decoder_in_turns,
)
from barnabas.protocol.codec.wire import TURN_ELEMENTS
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.messages import metadata
from tests.protocol.golden import message_versions
from tests.protocol.samples import messages

CLASSES = sorted({found for found, _ in message_versions()}, key=lambda found: found.__name__)


@pytest.mark.parametrize("message_class", CLASSES, ids=lambda found: found.__name__)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_message_survives_being_written_and_read(message_class: type, data: Any) -> None:
    versions = [version for found, version in message_versions() if found is message_class]
    version = data.draw(st.sampled_from(versions))
    message = data.draw(messages(message_class, version))
    written = encode(message, version)
    assert decode(message_class, version, written) == message
    assert b"".join(chunk_encoder(message_class, version)(message)) == written
    assert to_the_end(encoder_in_turns(message_class, version)(message))[0] == written
    assert to_the_end(request_decoder_in_turns(message_class, version)(written, 0))[0] == message


def to_the_end(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """The result, and how often others had their turn before."""
    for turns in count():
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, turns
    raise AssertionError


def test_a_long_message_is_written_and_read_in_several_turns() -> None:
    names = [metadata.Topic(name=f"{number}") for number in range(3 * TURN_ELEMENTS)]
    request = metadata.MetadataRequest(topics=names)
    written, turns = to_the_end(encoder_in_turns(metadata.MetadataRequest, 4)(request))
    assert turns == 3
    assert written == encode(request, 4)
    read, turns = to_the_end(request_decoder_in_turns(metadata.MetadataRequest, 4)(written, 0))
    assert turns == 3
    assert read == request


def test_a_long_message_that_is_cut_is_refused_in_its_turn() -> None:
    request = metadata.MetadataRequest(topics=[metadata.Topic(name="x" * 100)] * 100)
    cut = encode(request, 4)[:-1]
    with pytest.raises(CorruptRequest):
        to_the_end(request_decoder_in_turns(metadata.MetadataRequest, 4)(cut, 0))

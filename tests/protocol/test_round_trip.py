"""What is written is read back, for every version of every message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol.compiler import chunk_encoder, decode, encode
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

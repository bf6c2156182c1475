"""Who is told which APIs there are. Source: KIP-511; ApiVersionsRequest.isValid (3.9)."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.handlers.api_versions import ApiVersionsHandler
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from tests.handlers.peer import call, over_the_wire


def told(name: str, software_version: str, version: int) -> Any:
    handler = ApiVersionsHandler(lambda _: [(3, 12), (18, 4)], features_epoch=lambda: 5)
    request = ApiVersionsRequest(
        client_software_name=name, client_software_version=software_version
    )
    return over_the_wire(handler.api_versions(call(request, version)), version)


@pytest.mark.parametrize(
    ("name", "software_version"),
    [
        ("apache-kafka-java", "4.0.0-SNAPSHOT"),
        ("librdkafka", "2.16.1"),
        ("confluent-kafka-python", "2.16.1-librdkafka-2.16.1"),
        ("kafka-python", "3.0.11"),
        ("kgo", "v1.20.6"),
        ("sarama", "v1.47.0"),
        ("barnabas", "0"),
        ("x", "unknown"),
    ],
)
@pytest.mark.parametrize("version", [3, 4])
def test_known_software_is_told_the_apis(name: str, software_version: str, version: int) -> None:
    answer = told(name, software_version, version)
    assert (answer.error_code, len(answer.api_keys)) == (0, 2)


@pytest.mark.parametrize("wrong", ["", "-a", "a-", ".", "a b", "a/b", "@a", "a_b", "a\n", "é"])
@pytest.mark.parametrize("version", [3, 4])
def test_a_name_or_version_of_software_that_kafka_refuses_is_refused(
    wrong: str, version: int
) -> None:
    for answer in (told(wrong, "1.0", version), told("name", wrong, version)):
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert not answer.api_keys
        assert not answer.finalized_features
        assert answer.finalized_features_epoch == -1


def test_versions_before_the_name_of_software_need_none() -> None:
    assert [told("", "", version).error_code for version in range(3)] == [0, 0, 0]

"""Every client in an old and in its newest release: a group that comes back, offsets, settings.

The newest run in `make test`, the older ones at night. BARNABAS_INTEROP_SERVER=kafka asks Apache
Kafka the same, which has to answer alike.
"""

from __future__ import annotations

import pytest

from tests.harness.client_releases import (
    Release,
    go_release,
    java_release,
    javascript_release,
    python_release,
)
from tests.harness.deployments import Deployment

NEWEST = (
    python_release("kafka-python", ""),
    python_release("aiokafka", ""),
    python_release("confluent-kafka", ""),
    go_release("franz-go", "franz"),
    go_release("sarama", "sarama"),
    java_release("4.4.0"),
    javascript_release("kafkajs", "kafkajs_program.cjs", "2.2.4"),
    javascript_release("@platformatic/kafka", "platformatic_program.cjs", "1.35.0"),
)
OLDER = (
    *(python_release("kafka-python", version) for version in ("2.0.2", "2.2.*", "2.3.*", "3.0.11")),
    python_release("aiokafka", "0.10.0"),
    python_release("confluent-kafka", "2.3.0"),
    go_release("franz-go", "franz", "1.17.1"),
    go_release("sarama", "sarama", "1.43.3"),
    java_release("2.8.2"),
    java_release("3.9.1"),
    java_release("4.1.0"),
)
EXPECTED = {
    "create": 3,
    "groups before any": False,
    "produce": 90,
    "read": 90,
    "committed": {"0": 30, "1": 30, "2": 30},
    "produce more": 9,
    "read again": 9,
    "committed again": {"0": 33, "1": 33, "2": 33},
    "offsets": {"0": [0, 33], "1": [0, 33], "2": [0, 33]},
    "offset by time": 30,
    "groups": True,
    "offsets of the group": {"0": 33, "1": 33, "2": 33},
    "transactions": True,
    "alter": "86400000",
    "delete the group": True,
    "delete": True,
    "calls": [],
}
"""What comes of each step; a client makes those that it can, and the Go ones the rest as calls."""
ALWAYS = ("produce", "read", "committed", "read again", "committed again", "offsets", "groups")


@pytest.mark.parametrize(
    "release",
    [
        *(pytest.param(one, id=one.name) for one in NEWEST),
        *(pytest.param(one, id=one.name, marks=pytest.mark.nightly) for one in OLDER),
    ],
)
def test_a_release_of_a_client_does_all_its_steps(
    cluster: Deployment, release: Release, topic: str, group: str
) -> None:
    outcomes = release.outcomes(cluster.bootstrap, topic, group)
    assert outcomes == {step: EXPECTED[step] for step in outcomes}
    assert outcomes.keys() >= set(ALWAYS)

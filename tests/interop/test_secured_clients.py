"""Every client over TLS: by SCRAM or a certificate, with least rights, and refused without them.

The node is what ``barnabas security init`` makes, and at night also one whose settings were written
by hand. The newest releases run in `make test`, the older ones at night. docs/security.md says how
each is set up; the programs in tests/interop/secured are set up so.
Source: docs/spec/security.md §9 (S79).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.cluster import TopicPartition
from barnabas.client.consumer.list_offsets import LATEST
from barnabas.pipeline.cluster_requests import offsets_at
from tests.harness.hardened_node import hardened_node
from tests.harness.secured_node import ALICE, SecuredNode, secured_node
from tests.harness.secured_releases import (
    SCENARIOS,
    Outcomes,
    Scenario,
    SecuredClient,
    go_client,
    java_client,
    kcat_client,
    python_client,
)

LOSES_REASON = {("a wrong password", "produce"): ("58", "closed")}
"""The reason comes, and the end of the connection right behind it: these clients may read both at
once, and then forget the first."""
NO_METADATA = {
    ("no right", "produce"): (
        "29",
        "KafkaTimeoutError('Failed to update metadata after 8.0 secs.')",
    ),
    ("no right by a certificate", "produce"): (
        "29",
        "KafkaTimeoutError('Failed to update metadata after 8.0 secs.')",
    ),
}
"""kafka-python 2.0 waits for a topic that it may not see."""

NEWEST = (
    python_client("kafka-python", "", LOSES_REASON),
    python_client("aiokafka"),
    python_client("confluent-kafka"),
    python_client("own"),
    go_client("franz-go", "franz"),
    go_client("sarama", "sarama"),
    kcat_client(),
    java_client("4.4.0"),
)
OLDER = (
    python_client("kafka-python", "2.0.2", LOSES_REASON | NO_METADATA),
    python_client("aiokafka", "0.10.0", LOSES_REASON),
    python_client("confluent-kafka", "2.3.0"),
    go_client("franz-go", "franz", "1.17.1"),
    go_client("sarama", "sarama", "1.43.3"),
    java_client("2.8.2"),
    java_client("3.9.1"),
    java_client("4.1.0"),
)
each_client = pytest.mark.parametrize(
    "client",
    [
        *(pytest.param(one, id=one.name) for one in NEWEST),
        *(pytest.param(one, id=one.name, marks=pytest.mark.nightly) for one in OLDER),
    ],
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(hardened_node, id="hardened"),
        pytest.param(secured_node, id="by hand", marks=pytest.mark.nightly),
    ],
)
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredNode]:
    with request.param(tmp_path_factory.mktemp("secured")) as made:
        yield made


@pytest.fixture(scope="module")
def told(node: SecuredNode) -> Callable[[SecuredClient], Outcomes]:
    """What a client told: a program does all scenarios at once, since to start it costs most."""
    kept: dict[str, Outcomes] = {}

    def ask(client: SecuredClient) -> Outcomes:
        if client.name not in kept:
            kept[client.name] = client.outcomes(node)
        return kept[client.name]

    return ask


@each_client
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_client_is_served_or_told_why_not(
    told: Callable[[SecuredClient], Outcomes], client: SecuredClient, scenario: Scenario
) -> None:
    found = told(client)[scenario.name]
    for step, outcome in found.items():
        expected = client.expected(scenario, step)
        wanted = expected if isinstance(expected, tuple) else (expected,)
        assert outcome in wanted, f"{step}: {found}"
    assert found.keys() >= set(scenario.steps) - {"transaction", "read again"}


PAGE = Path(__file__).parents[2] / "docs" / "security.md"
SNIPPET = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)
IMPORTED = re.compile(r"from (?P<module>barnabas|confluent_kafka|kafka|aiokafka)\b")
SNIPPETS = {IMPORTED.search(text)["module"]: text for text in SNIPPET.findall(PAGE.read_text())}  # type: ignore[index]


@pytest.mark.parametrize("library", ["barnabas", "confluent_kafka", "kafka", "aiokafka"])
def test_what_the_page_on_security_shows_works_as_it_stands(
    node: SecuredNode, library: str, topic: str
) -> None:
    """But for the address, the file, the password and the topic."""
    node.create_topic(topic)
    text = SNIPPETS[library]
    for shown, meant in (
        ("broker-1.example.org:9093", node.login),
        ("/etc/barnabas/authority.pem", str(node.trust)),
        ('"secret"', f'"{node.password(ALICE)}"'),
        ('"orders"', f'"{topic}"'),
    ):
        assert shown in text
        text = text.replace(shown, meant)
    subprocess.run([sys.executable, "-c", text], check=True, timeout=400)
    offsets = node.as_root(lambda admin: ends_of(admin, topic))
    assert offsets == 1


async def ends_of(admin: Admin, topic: str) -> int:
    place = TopicPartition(topic, 0)
    return (await offsets_at(admin.cluster, {place: LATEST}))[place]

"""Access control lists in a cluster of Kafka's nodes and of ours: what either wrote acts on both.

Entries are made and removed by who has proved the cluster's secret; what they do is seen by
somebody who has not logged in.
Source: docs/spec/security.md §3 (the checks of S46 to S49; S86, S95, S99).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from barnabas.console.development.cluster import Cluster
from barnabas.protocol.acl import (
    Acl,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.protocol.messages import create_acls, delete_acls, describe_acls, metadata
from barnabas.protocol.zookeeper import acl_znodes
from barnabas.protocol.zookeeper.broker_registration import BrokerRegistration
from barnabas.protocol.zookeeper.znodes import broker_path
from tests.authorizer.compared_servers import NODE_USER, Session
from tests.harness import znodes
from tests.harness.kafka_peers import SHARED, Tree, kafka_peer
from tests.harness.waiting import eventually

pytestmark = pytest.mark.kafka

SETTINGS: Final = {
    **SHARED,
    "zookeeper.session.timeout.ms": "10000",  # the longest there is: nobody is to be lost
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": f"User:{NODE_USER}",
    "auto.create.topics.enable": "false",
}
KAFKA: Final = 3
NODES: Final = (1, 2, KAFKA)
PAIRS: Final = [(1, KAFKA), (KAFKA, 1), (1, 2)]
EVERYBODY: Final = "User:*"


class Mixed:
    """Two nodes of ours and one of Kafka."""

    def __init__(self, zookeeper: str, secret: str) -> None:
        self.zookeeper = zookeeper
        self._secret = secret

    def as_node(self, node: int) -> Session:
        """Somebody who may change entries there."""
        return Session(self._address(node, "INTERNAL"), NODE_USER, self._secret)

    def code(self, node: int, topic: str) -> int:
        """What a stranger is told about a topic that is not there: 29, or 3 if he may know."""
        request = metadata.MetadataRequest(
            topics=[metadata.Topic(name=topic)], allow_auto_topic_creation=False
        )
        with Session(self._address(node, "PLAINTEXT")) as session:
            return int(session.ask(request, 8).topics[0].error_code)

    def _address(self, node: int, listener: str) -> tuple[str, int]:
        data = znodes.data(self.zookeeper, broker_path(node))
        assert data is not None
        return BrokerRegistration.from_json(data).endpoints[listener]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    with Cluster(2, settings=SETTINGS) as ours:
        directory = tmp_path_factory.mktemp("kafka")
        peer = kafka_peer(KAFKA, directory, ours.zookeeper, secret=ours.secret, settings=SETTINGS)
        with peer:
            Tree(ours.zookeeper).await_registered(set(NODES))
            yield Mixed(ours.zookeeper, ours.secret)


def entry(
    name: str,
    operation: Operation = Operation.DESCRIBE,
    *,
    principal: str = EVERYBODY,
    permission: Permission = Permission.ALLOW,
    pattern_type: PatternType = PatternType.LITERAL,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(ResourceType.TOPIC, name, pattern_type),
        Acl(principal, "*", operation, permission),
    )


def create(session: Session, *bindings: AclBinding) -> list[int]:
    creations = [
        create_acls.Creation(
            resource_type=one.pattern.resource_type,
            resource_name=one.pattern.name,
            resource_pattern_type=one.pattern.pattern_type,
            principal=one.acl.principal,
            host=one.acl.host,
            operation=one.acl.operation,
            permission_type=one.acl.permission,
        )
        for one in bindings
    ]
    answer = session.ask(create_acls.CreateAclsRequest(creations=creations), 3)
    return [int(one.error_code) for one in answer.results]


def _filter(module: Any, one: AclBinding) -> dict[str, Any]:
    return {
        "resource_type_filter": one.pattern.resource_type,
        "resource_name_filter": one.pattern.name,
        "pattern_type_filter": one.pattern.pattern_type,
        "principal_filter": one.acl.principal,
        "host_filter": one.acl.host,
        "operation": one.acl.operation,
        "permission_type": one.acl.permission,
    }


def delete(session: Session, *bindings: AclBinding) -> int:
    """How many were removed."""
    filters = [delete_acls.Filter(**_filter(delete_acls, one)) for one in bindings]
    answer = session.ask(delete_acls.DeleteAclsRequest(filters=filters), 3)
    assert not any(one.error_code for one in answer.filter_results)
    return sum(len(one.matching_acls) for one in answer.filter_results)


def described(session: Session, name: str) -> set[tuple[str, int]]:
    """Principals and operations on a literal topic, as a node knows them."""
    request = describe_acls.DescribeAclsRequest(
        resource_type_filter=2,
        resource_name_filter=name,
        pattern_type_filter=3,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    answer = session.ask(request, 3)
    assert not answer.error_code
    return {(acl.principal, acl.operation) for one in answer.resources for acl in one.acls}


@pytest.mark.parametrize(("here", "there"), PAIRS, ids=["ours-kafka", "kafka-ours", "ours-ours"])
@pytest.mark.parametrize(
    ("name", "topic", "pattern_type"),
    [
        ("plain", "plain", PatternType.LITERAL),
        ("pre", "prefixed", PatternType.PREFIXED),
    ],
)
def test_an_entry_acts_on_the_other_side_and_its_end_does(
    mixed: Mixed,
    here: int,
    there: int,
    name: str,
    topic: str,
    pattern_type: PatternType,
) -> None:
    made = entry(f"{here}{there}{name}", pattern_type=pattern_type)
    asked = f"{here}{there}{topic}"
    with mixed.as_node(here) as session:
        assert mixed.code(there, asked) == 29
        assert create(session, made) == [0]
        eventually(lambda: mixed.code(there, asked) == 3, what="it acts there")
        assert mixed.code(here, asked) == 3
        assert delete(session, made) == 1
        eventually(lambda: mixed.code(there, asked) == 29, what="its end acts there")


@pytest.mark.parametrize(("here", "there"), PAIRS[:2], ids=["ours-kafka", "kafka-ours"])
def test_a_denial_by_one_side_beats_what_the_other_allows(
    mixed: Mixed, here: int, there: int
) -> None:
    name = f"denied-{here}"
    with mixed.as_node(here) as first, mixed.as_node(there) as second:
        assert create(first, entry(name)) == [0]
        eventually(lambda: mixed.code(there, name) == 3, what="it is allowed")
        denial = entry(name, permission=Permission.DENY)
        assert create(second, denial) == [0]
        eventually(lambda: mixed.code(here, name) == 29, what="it is denied")
        assert delete(first, denial) == 1
        eventually(lambda: mixed.code(there, name) == 3, what="it is allowed again")


@pytest.mark.parametrize("node", NODES)
def test_deleting_one_of_three_leaves_two_in_force_on_every_node(mixed: Mixed, node: int) -> None:
    """S86: CVE-2024-27309."""
    name = f"three-{node}"
    users = [f"User:{number}" for number in range(3)]
    with mixed.as_node(1) as session:
        three = [entry(name, principal=user) for user in users]
        assert create(session, *three) == [0, 0, 0]
    with mixed.as_node(node) as session:
        assert delete(session, three[1]) == 1
    left = {(users[0], Operation.DESCRIBE), (users[2], Operation.DESCRIBE)}
    for other in NODES:
        with mixed.as_node(other) as session:
            eventually(lambda at=session: described(at, name) == left, what="two are left")  # type: ignore[misc]


def test_of_concurrent_creations_on_all_nodes_none_that_was_answered_is_lost(mixed: Mixed) -> None:
    """Kafka's gives up after ten lost races (-1): such an entry may or may not be there."""
    name, share = "crowded", 60

    def create_at(node: int) -> tuple[set[str], set[str]]:
        good, unknown = set[str](), set[str]()
        with mixed.as_node(node) as session:
            for number in range(share):
                user = f"User:{node}-{number}"
                (code,) = create(session, entry(name, principal=user))
                assert code == 0 or (node == KAFKA and code == -1)
                (unknown if code else good).add(user)
        return good, unknown

    with ThreadPoolExecutor(len(NODES)) as pool:
        outcomes = list(pool.map(create_at, NODES))
    good = set().union(*(one for one, _ in outcomes))
    unknown = set().union(*(one for _, one in outcomes))
    pattern = ResourcePattern(ResourceType.TOPIC, name)
    data = znodes.data(mixed.zookeeper, acl_znodes.resource_path(pattern))
    assert data is not None
    written = {acl.principal for acl in acl_znodes.acls_from_json(data)}
    assert good <= written <= good | unknown
    assert len(good) >= 2 * share
    for node in NODES:
        with mixed.as_node(node) as session:
            eventually(
                lambda at=session: {who for who, _ in described(at, name)} == written,  # type: ignore[misc]
                what="every node knows all of them",
            )


@pytest.mark.parametrize("name", ["a+b", "a%20b", "a*b", "~", "<default>", "a b", "é"])
@pytest.mark.parametrize("node", [1, KAFKA])
def test_odd_names_of_users_stay_what_they_are(mixed: Mixed, node: int, name: str) -> None:
    """S94, S95: byte for byte, without normalisation."""
    topic = f"odd-{node}"
    with mixed.as_node(node) as session:
        assert create(session, entry(topic, principal=f"User:{name}")) == [0]
    wanted = (f"User:{name}", Operation.DESCRIBE)
    for other in NODES:
        with mixed.as_node(other) as session:
            eventually(lambda at=session: wanted in described(at, topic), what="it is known")  # type: ignore[misc]


def test_a_prefixed_star_means_names_that_begin_with_one_on_both_sides(mixed: Mixed) -> None:
    """S99."""
    with mixed.as_node(1) as session:
        made = entry("*", pattern_type=PatternType.PREFIXED)
        assert create(session, made, entry("seen")) == [0, 0]
        for node in NODES:
            eventually(lambda at=node: mixed.code(at, "seen") == 3, what="both are read")  # type: ignore[misc]
            assert mixed.code(node, "unseen") == 29
        assert delete(session, made) == 1

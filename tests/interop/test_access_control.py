"""Access control lists with the clients and tools of others: docs/spec/security.md §3 and §9 (S78).

All clients are User:ANONYMOUS on a plaintext listener; the first entries are written to ZooKeeper,
as kafka-acls does with --authorizer-properties.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import admin as confluent_admin
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from barnabas.client.admin.admin import Admin
from barnabas.client.errors import KafkaError
from barnabas.console.__main__ import main
from barnabas.console.development.cluster import Cluster
from barnabas.protocol import acl
from barnabas.protocol.zookeeper import acl_znodes
from tests.harness import znodes
from tests.harness.kafka_python_client import FRESH
from tests.harness.kafka_tools import Tool
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

ACLS = "kafka.admin.AclCommand"
confluent: Any = confluent_admin
"""Its names for access control are not typed."""
EVERYBODY = "User:*"
WAIT_S = 90
PATIENT = ("--timeout-ms", "60000")
SETTINGS = {
    **STEADY,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:root",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Cluster]:
    """Two nodes on which everybody may create topics and change entries, and nothing else."""
    with Cluster(2, settings=SETTINGS) as running:
        operations = (acl.Operation.DESCRIBE, acl.Operation.ALTER, acl.Operation.CREATE)
        grant(
            running,
            acl.ResourcePattern(acl.ResourceType.CLUSTER, acl.CLUSTER_NAME),
            *operations,
        )

        async def entries_at(address: str) -> int:
            async with Admin.of(address) as admin:
                return len(await admin.describe_acls())

        def is_in_force() -> bool:
            """On both nodes: each reads ZooKeeper when it comes to it."""
            try:
                found = {asyncio.run(entries_at(node.address)) for node in running.nodes}
            except KafkaError:
                return False
            return found == {len(operations)}

        eventually(is_in_force, what="the first entries are in force")
        yield running


def grant(cluster: Cluster, pattern: acl.ResourcePattern, *operations: acl.Operation) -> None:
    """Write entries and their note by hand, as Kafka does."""
    acls = [acl.Acl(EVERYBODY, "*", operation, acl.Permission.ALLOW) for operation in operations]
    with znodes.session(cluster.zookeeper) as client:
        client.create(acl_znodes.resource_path(pattern), acl_znodes.acls_to_json(acls))
        prefix = f"{acl_znodes.CHANGES[pattern.pattern_type]}/{acl_znodes.CHANGE_PREFIX}"
        client.create(prefix, acl_znodes.change_to_json(pattern), sequence=True)


@pytest.fixture
def admin(guarded: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": guarded.bootstrap})


def binding(
    kind: Any, name: str, operation: Any, pattern: Any = confluent.ResourcePatternType.LITERAL
) -> Any:
    return confluent.AclBinding(
        *(kind, name, pattern, EVERYBODY, "*", operation, confluent.AclPermissionType.ALLOW)
    )


def create(admin: AdminClient, *bindings: Any) -> None:
    for made in admin.create_acls(list(bindings)).values():
        made.result(WAIT_S)


def fresh(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def sends(cluster: Cluster, topic: str) -> None:
    with_producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap, enable_idempotence=False, max_block_ms=WAIT_S * 1000
    )
    try:
        with_producer.send(topic, b"value").get(WAIT_S)
    finally:
        with_producer.close(5)


def reads(cluster: Cluster, topic: str, group: str) -> list[bytes]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_S * 1000,
        enable_auto_commit=False,
        **FRESH,
    )
    try:
        value = next(consumer).value
        consumer.commit()
        return [value]
    finally:
        consumer.close()


def is_allowed(work: Callable[[], object], *refusals: type[Exception]) -> Callable[[], bool]:
    def attempt() -> bool:
        try:
            work()
        except refusals:
            return False
        return True

    return attempt


def test_a_client_does_what_its_entries_allow_and_is_refused_the_rest(
    guarded: Cluster, admin: AdminClient
) -> None:
    """kafka-python, with entries made by confluent-kafka: each right by itself, with its code."""
    topic, group = fresh("topic"), fresh("group")
    with pytest.raises(TopicAuthorizationFailedError):
        sends(guarded, topic)
    create(
        admin,
        binding(confluent.ResourceType.TOPIC, topic, confluent.AclOperation.WRITE),
        binding(confluent.ResourceType.TOPIC, topic, confluent.AclOperation.CREATE),
    )
    eventually(
        is_allowed(lambda: sends(guarded, topic), TopicAuthorizationFailedError), what="written"
    )
    with pytest.raises(GroupAuthorizationFailedError):
        reads(guarded, topic, group)
    create(admin, binding(confluent.ResourceType.GROUP, group, confluent.AclOperation.READ))
    with pytest.raises(TopicAuthorizationFailedError):
        eventually(
            is_allowed(lambda: reads(guarded, topic, group), GroupAuthorizationFailedError),
            what="the group may be joined",
        )
    create(admin, binding(confluent.ResourceType.TOPIC, topic, confluent.AclOperation.READ))
    refusals = (TopicAuthorizationFailedError, GroupAuthorizationFailedError)
    eventually(
        is_allowed(lambda: reads(guarded, topic, group), *refusals), what="read and committed"
    )


def test_confluents_administrator_makes_lists_and_removes_entries(admin: AdminClient) -> None:
    name = fresh("prefix")
    made = binding(
        confluent.ResourceType.TOPIC,
        name,
        confluent.AclOperation.READ,
        confluent.ResourcePatternType.PREFIXED,
    )
    create(admin, made, binding(confluent.ResourceType.TOPIC, name, confluent.AclOperation.ALL))
    concerning = confluent.AclBindingFilter(
        *(
            confluent.ResourceType.TOPIC,
            f"{name}-and-more",
            confluent.ResourcePatternType.MATCH,
            None,
            None,
        ),
        *(confluent.AclOperation.ANY, confluent.AclPermissionType.ANY),
    )
    assert admin.describe_acls(concerning).result(WAIT_S) == [made]
    (removed,) = admin.delete_acls([concerning]).values()
    assert removed.result(WAIT_S) == [made]
    assert admin.describe_acls(concerning).result(WAIT_S) == []


def test_kafka_acls_adds_lists_and_removes_on_nodes_of_ours(guarded: Cluster, tool: Tool) -> None:
    """S78: --producer and --consumer, over the protocol."""
    topic, group = fresh("topic"), fresh("group")
    where = ("--bootstrap-server", guarded.bootstrap)
    who = ("--allow-principal", "User:alice", "--topic", topic)
    tool(ACLS, *where, "--add", *who, "--producer")
    tool(ACLS, *where, "--add", *who, "--consumer", "--group", group)
    expected = {
        f"principal=User:alice, host=*, operation={operation}, permissionType=ALLOW"
        for operation in ("WRITE", "CREATE", "DESCRIBE", "READ")
    }

    def shown(*words: str) -> str:
        return tool(ACLS, *where, "--list", *words)

    def are_listed() -> bool:
        listed = shown("--topic", topic)
        return all(line in listed for line in expected)

    # The tool asks any node, which may hear of a change a moment after another has answered it.
    eventually(are_listed, what="all entries are listed")
    eventually(lambda: "operation=READ" in shown("--group", group), what="that of the group is")
    tool(ACLS, *where, "--remove", "--force", "--topic", topic)
    eventually(lambda: "alice" not in shown("--topic", topic), what="none is listed")


def test_kafka_acls_writes_to_zookeeper_and_nodes_of_ours_obey(
    guarded: Cluster, tool: Tool
) -> None:
    """S46, S47, S78: --authorizer-properties; odd names as well (S95)."""
    topic = fresh("topic")
    where = ("--authorizer-properties", f"zookeeper.connect={guarded.zookeeper}")
    who = ("--allow-principal", EVERYBODY, "--topic", topic[:-2])
    rights = (
        "--operation",
        "Write",
        "--operation",
        "Create",
        "--resource-pattern-type",
        "prefixed",
    )
    tool(ACLS, *where, "--add", *who, *rights)
    eventually(
        is_allowed(lambda: sends(guarded, topic), TopicAuthorizationFailedError), what="written"
    )
    odd = "a+b %*~\u00e9"
    tool(
        ACLS,
        *where,
        "--add",
        "--allow-principal",
        f"User:{odd}",
        "--group",
        odd,
        "--operation",
        "All",
    )
    at = ("--bootstrap-server", guarded.bootstrap)
    eventually(
        lambda: f"User:{odd}" in tool(ACLS, *at, "--list", "--group", odd),
        what="nodes have read what stands in ZooKeeper",
    )
    tool(ACLS, *at, "--remove", "--force", "--group", odd)
    assert odd not in tool(ACLS, *where, "--list", "--group", odd).partition("Current ACLs")[2]


def test_our_command_adds_lists_and_removes_entries(
    guarded: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """S78: barnabas acls, in the manner of kafka-acls."""
    topic = fresh("topic")
    where = ("--bootstrap", guarded.bootstrap, *PATIENT, "--json")
    who = ("--topic", topic, "--allow-principal", "User:alice")

    def done(*words: str) -> list[tuple[str, str]]:
        assert main(["acls", *words, *where]) == 0
        return sorted(
            (one["name"], one["operation"]) for one in json.loads(capsys.readouterr().out)
        )

    added = [(topic, word) for word in ("Create", "Describe", "Write")]
    assert done("add", *who, "--producer") == added
    assert done("list", "--topic", topic) == added
    assert done("remove", "--topic", topic, "--dry-run") == added
    single = ("--operation", "Describe", "--allow-principal", "User:alice")
    assert done("remove", "--topic", topic, *single) == [(topic, "Describe")]
    assert done("remove", "--topic", topic) == [(topic, "Create"), (topic, "Write")]
    assert done("list", "--topic", topic) == []

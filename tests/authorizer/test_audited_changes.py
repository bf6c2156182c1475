"""What the audit log of a whole node says of changes and denials (S76), and what it never says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.handlers.audited_changes import PARTS, PARTS_MAX
from barnabas.protocol.acl import Operation, Permission, ResourceType
from barnabas.protocol.api import ApiKey, spec_of
from barnabas.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    elect_leaders,
    expire_delegation_token,
    incremental_alter_configs,
    offset_delete,
    renew_delegation_token,
    update_features,
)
from tests.authorizer.asked_apis import ASKED
from tests.authorizer.asked_more import LISTINGS
from tests.authorizer.guarded_node import ALICE, ROOT, GuardedNode, allow, guarded_node
from tests.handlers.peer import SomePeer

SUPER = SomePeer(principal=ROOT, host="10.1.1.1", listener="USERS")
CANARY = "Canary.Value"


class Audited:
    """A node and the lines of its audit log."""

    def __init__(self, runner: asyncio.Runner, node: GuardedNode) -> None:
        self._runner = runner
        self._node = node
        self.lines: list[str] = []
        node.node._audit._write = self.lines.append
        node.entries([])

    def events(self, request: Any, version: int, peer: SomePeer = SUPER) -> list[dict[str, Any]]:
        """What one request leaves; times left out."""
        self.lines.clear()
        self._runner.run(self._node.ask(request, version, peer))
        found = [json.loads(line) for line in self.lines]
        found = [one for one in found if one.get("listener") != "INTERNAL"]  # nodes log in
        for one in found:
            del one["time"]
        return found

    def change(self, request: Any, version: int) -> dict[str, Any]:
        """The one line of a change by the super user: who he is is looked at here."""
        (event,) = self.events(request, version)
        by = {"listener": "USERS", "host": "10.1.1.1", "principal": ROOT, "client_id": "test"}
        assert {name: event.pop(name) for name in by} == by
        assert event.pop("event") == "change"
        return event


@pytest.fixture(scope="module")
def audited() -> Iterator[Audited]:
    with guarded_node() as (runner, node):
        yield Audited(runner, node)


def topics(*names: str, validate_only: bool = False) -> create_topics.CreateTopicsRequest:
    wanted = [
        create_topics.Topic(
            name=name,
            num_partitions=2,
            replication_factor=1,
            configs=[create_topics.Config(name="retention.ms", value="1000")],
        )
        for name in names
    ]
    return create_topics.CreateTopicsRequest(
        topics=wanted, timeout_ms=5000, validate_only=validate_only
    )


def partition_of(module: Any, name: str, **fields: Any) -> list[Any]:
    return [module.Topic(name=name, partitions=[module.Partition(partition_index=0, **fields)])]


def test_topics_that_are_made_and_those_that_cannot_be(audited: Audited) -> None:
    event = audited.change(topics("made", "t"), 5)
    parts = sorted(event.pop("parts"), key=lambda part: str(part["topic"]))
    assert parts == [{"topic": "made", "code": 0}, {"topic": "t", "code": 36}]
    assert event == {"api": "CreateTopics", "result": "failure"}


def test_what_is_only_validated_leaves_no_line(audited: Audited) -> None:
    assert audited.events(topics("never", validate_only=True), 5) == []


def test_a_request_leaves_one_line_however_much_it_names(audited: Audited) -> None:
    request = delete_groups.DeleteGroupsRequest(
        groups_names=[f"none-{number}" for number in range(PARTS_MAX + 5)]
    )
    event = audited.change(request, 2)
    assert len(event["parts"]) == PARTS_MAX
    assert event["more"] is True
    assert event["parts"][0] == {"group": "none-0", "code": 69}


CHANGES: dict[str, tuple[Any, int, list[dict[str, Any]]]] = {
    "more partitions": (
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.Topic(name="t", count=3, assignments=None)], timeout_ms=5000
        ),
        3,
        [{"topic": "t", "partitions": 3, "code": 0}],
    ),
    "records": (
        delete_records.DeleteRecordsRequest(
            topics=partition_of(delete_records, "t", offset=0), timeout_ms=1000
        ),
        2,
        [{"topic": "t", "partition": 0, "code": 0}],
    ),
    "settings, all of them": (
        alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.Resource(
                    resource_type=2,
                    resource_name="t",
                    configs=[alter_configs.Config(name="retention.ms", value="7")],
                )
            ]
        ),
        2,
        [{"topic": "t", "settings": ["retention.ms"], "code": 0}],
    ),
    "settings of a group": (
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.Resource(
                    resource_type=32,
                    resource_name="g",
                    configs=[
                        incremental_alter_configs.Config(
                            name="consumer.session.timeout.ms", config_operation=0, value="50000"
                        )
                    ],
                )
            ]
        ),
        1,
        [{"group": "g", "settings": ["consumer.session.timeout.ms"], "code": 0}],
    ),
    "a setting, whose value nobody is told": (
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.Resource(
                    resource_type=4,
                    resource_name="1",
                    configs=[
                        incremental_alter_configs.Config(
                            name="listener.name.users.ssl.keystore.password",
                            config_operation=0,
                            value=CANARY,
                        )
                    ],
                )
            ]
        ),
        1,
        [
            {
                "node": "1",
                "settings": ["listener.name.users.ssl.keystore.password"],
                "code": 42,
            }
        ],
    ),
    "an entry": (
        create_acls.CreateAclsRequest(
            creations=[
                create_acls.Creation(
                    resource_type=2,
                    resource_name="t",
                    resource_pattern_type=4,
                    principal="User:bob",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        3,
        [
            {
                "permission": "ALLOW",
                "principal": "User:bob",
                "host": "*",
                "operation": "READ",
                "resource": "TOPIC:t",
                "pattern": "PREFIXED",
                "code": 0,
            }
        ],
    ),
    "entries that go": (
        delete_acls.DeleteAclsRequest(
            filters=[
                delete_acls.Filter(
                    resource_type_filter=2,
                    resource_name_filter="t",
                    pattern_type_filter=4,
                    principal_filter=None,
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                )
            ]
        ),
        3,
        [
            {
                "permission": "ALLOW",
                "principal": "User:bob",
                "host": "*",
                "operation": "READ",
                "resource": "TOPIC:t",
                "pattern": "PREFIXED",
                "code": 0,
            }
        ],
    ),
    "quotas": (
        alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.Entry(
                    entity=[
                        alter_client_quotas.Entity(entity_type="user", entity_name="bob"),
                        alter_client_quotas.Entity(entity_type="client-id", entity_name=None),
                    ],
                    ops=[
                        alter_client_quotas.Op(key="producer_byte_rate", value=1000.0),
                        alter_client_quotas.Op(key="consumer_byte_rate", remove=True),
                    ],
                )
            ]
        ),
        1,
        [
            {
                "of": {"user": "bob", "client-id": "<default>"},
                "quotas": {"producer_byte_rate": 1000.0, "consumer_byte_rate": None},
                "code": 0,
            }
        ],
    ),
    "a user, whose password nobody is told": (
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[alter_user_scram_credentials.Deletion(name="nobody", mechanism=1)],
            upsertions=[
                alter_user_scram_credentials.Upsertion(
                    name="bob",
                    mechanism=2,
                    iterations=4096,
                    salt=CANARY.encode(),
                    salted_password=CANARY.encode().ljust(64, b"."),
                )
            ],
        ),
        0,
        [
            {"user": "nobody", "credentials": ["remove SCRAM-SHA-256"], "code": 91},
            {"user": "bob", "credentials": ["set SCRAM-SHA-512"], "code": 0},
        ],
    ),
    "leaders": (
        elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions(topic="t", partitions=[0])],
            timeout_ms=1000,
        ),
        2,
        [{"topic": "t", "partition": 0, "code": 84}],
    ),
    "replicas": (
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            timeout_ms=1000,
            topics=partition_of(alter_partition_reassignments, "t", replicas=[9]),
        ),
        0,
        [{"topic": "t", "partition": 0, "replicas": [9], "code": 39}],
    ),
    "offsets of a group": (
        offset_delete.OffsetDeleteRequest(group_id="g", topics=partition_of(offset_delete, "t")),
        0,
        [{"group": "g", "topic": "t", "partition": 0, "code": 0}],
    ),
    "groups": (
        delete_groups.DeleteGroupsRequest(groups_names=["g"]),
        2,
        [{"group": "g", "code": 69}],  # it went with its last offset
    ),
    "a token": (
        create_delegation_token.CreateDelegationTokenRequest(max_lifetime_ms=-1),
        3,
        [{"token": "", "owner": "User:root", "code": 61}],
    ),
    "more time for a token, which is named by its secret": (
        renew_delegation_token.RenewDelegationTokenRequest(hmac=CANARY.encode()),
        2,
        [{"code": 61}],
    ),
    "the end of a token": (
        expire_delegation_token.ExpireDelegationTokenRequest(hmac=CANARY.encode()),
        2,
        [{"code": 61}],
    ),
    "features": (
        update_features.UpdateFeaturesRequest(
            feature_updates=[
                update_features.FeatureUpdate(feature="f", max_version_level=1, upgrade_type=1)
            ],
            timeout_ms=1000,
        ),
        1,
        [{"feature": "f", "code": 42}],
    ),
    "topics that go": (
        delete_topics.DeleteTopicsRequest(topic_names=["t", "gone"], timeout_ms=5000),
        5,
        [{"topic": "gone", "code": 3}, {"topic": "t", "code": 0}],
    ),
}
"""In this order: one builds on another."""


@pytest.mark.parametrize("label", CHANGES)
def test_each_change_leaves_its_parts_and_their_codes(audited: Audited, label: str) -> None:
    request, version, parts = CHANGES[label]
    event = audited.change(request, version)
    assert sorted(event["parts"], key=repr) == sorted(parts, key=repr)
    assert event["result"] == ("failure" if any(part["code"] for part in parts) else "success")
    assert event["api"] == spec_of(type(request)).name
    assert CANARY not in audited.lines[0]


def test_every_change_is_asked_for_here() -> None:
    asked = {spec_of(type(request)).key for request, _, _ in CHANGES.values()}
    assert asked | {ApiKey.CREATE_TOPICS} == set(PARTS)


def test_a_denial_leaves_a_line_and_so_does_the_change_that_was_not_made(audited: Audited) -> None:
    peer = SomePeer(principal=ALICE, host="10.2.2.2", listener="USERS")
    denied, change = audited.events(topics("denied"), 5, peer)
    assert denied == {
        "event": "access",
        "result": "denied",
        "listener": "USERS",
        "host": "10.2.2.2",
        "principal": ALICE,
        "operation": "Create",
        "resource": "Topic:denied",
        "api": "CreateTopics",
    }
    assert (change["result"], change["parts"]) == ("failure", [{"topic": "denied", "code": 29}])


def test_names_that_guards_take_out_are_told(audited: Audited) -> None:
    """A guard serves what is left of a request: its line is of the whole."""
    peer = SomePeer(principal=ALICE, host="10.2.2.3", listener="USERS")
    audited._node.entries([allow(ResourceType.TOPIC, "mine", Operation.ALTER_CONFIGS)])
    try:
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.Resource(
                    resource_type=2,
                    resource_name=name,
                    configs=[
                        incremental_alter_configs.Config(
                            name="retention.ms", config_operation=0, value="7"
                        )
                    ],
                )
                for name in ("mine", "theirs")
            ]
        )
        change = audited.events(request, 1, peer)[-1]
    finally:
        audited._node.entries([])
    assert sorted(change["parts"], key=lambda part: part["topic"]) == [
        {"topic": "mine", "settings": ["retention.ms"], "code": 3},
        {"topic": "theirs", "settings": ["retention.ms"], "code": 29},
    ]


def test_reading_leaves_no_line_of_a_change(audited: Audited) -> None:
    for asked in ASKED:
        if spec_of(type(asked.request("t"))).key not in PARTS and not asked.is_internal:
            assert audited.events(asked.request("t"), asked.version) == [], asked.label


def test_what_only_leaves_something_out_is_no_denial(audited: Audited) -> None:
    deny = allow(ResourceType.TOPIC, "*", Operation.ALL, permission=Permission.DENY)
    audited._node.entries([deny])
    peer = SomePeer(principal=ALICE, host="10.2.2.4", listener="USERS")
    for asked in LISTINGS:
        if asked.label != "offsets of all topics":
            assert audited.events(asked.request("t"), asked.version, peer) == [], asked.label
    audited._node.entries([])

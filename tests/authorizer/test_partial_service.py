"""What is served and shown of a request that is allowed in part: docs/spec/security.md §3."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.handlers import guards as rights
from barnabas.broker.handlers.guards import Right
from barnabas.broker.metrics.access_control_families import access_control_families
from barnabas.protocol.acl import EVERYBODY, AclBinding, Operation, ResourceType
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_groups,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_transactions,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
)
from barnabas.protocol.records.builder import build_batch
from tests.authorizer.guarded_node import (
    ALICE,
    ROOT,
    GuardedNode,
    allow,
    codes,
    everything,
    guarded_node,
)
from tests.handlers.peer import SomePeer
from tests.sim.test_daemon import eventually

Running = tuple[asyncio.Runner, GuardedNode]
SUPER = SomePeer(principal=ROOT)


@pytest.fixture
def running() -> Iterator[Running]:
    """With topics ``t`` and ``secret``, and groups ``g`` and ``hidden``."""
    with guarded_node() as (runner, node):
        runner.run(more(node))
        yield runner, node


async def more(node: GuardedNode) -> None:
    topic = create_topics.Topic(name="secret", num_partitions=1, replication_factor=1)
    made = await node.ask(
        create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5, SUPER
    )
    assert codes(made) == [0, 0]
    assert codes(await node.ask(commit("hidden", "secret"), 8, SUPER)) == [0]
    assert codes(await node.ask(commit("g", "secret"), 8, SUPER)) == [0]


def commit(group: str, *topics: str, offset: int = 7) -> offset_commit.OffsetCommitRequest:
    return offset_commit.OffsetCommitRequest(
        group_id=group,
        topics=[
            offset_commit.Topic(
                name=name,
                partitions=[offset_commit.Partition(partition_index=0, committed_offset=offset)],
            )
            for name in topics
        ],
    )


def granted(right: Right, name: str) -> AclBinding:
    return allow(right.resource_type, name, right.operation)


def batch_of(name: str, *, acks: int = -1) -> produce.ProduceRequest:
    records = bytes(build_batch([(b"k", b"v")], timestamp_ms=1))
    partition = produce.Partition(index=0, records=records)
    return produce.ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[produce.Topic(name=name, partition_data=[partition])],
    )


def both(request: produce.ProduceRequest, other: str) -> produce.ProduceRequest:
    request.topic_data = [*request.topic_data, *batch_of(other).topic_data]
    return request


def fetching(*names: str, session: tuple[int, int] = (0, -1), **how: Any) -> fetch.FetchRequest:
    return fetch.FetchRequest(
        max_wait_ms=how.pop("max_wait_ms", 0),
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            fetch.Topic(
                topic=name,
                partitions=[fetch.Partition(partition=0, fetch_offset=0, partition_max_bytes=999)],
            )
            for name in names
        ],
        **how,
    )


def by_topic(answer: Any) -> dict[str, list[int]]:
    return {
        topic.name if hasattr(topic, "name") else topic.topic: codes(topic)
        for topic in (answer.topics if hasattr(answer, "topics") else answer.responses)
    }


# -- records ---------------------------------------------------------------------------------------


def test_the_permitted_part_of_a_produce_is_appended_and_the_rest_is_not(running: Running) -> None:
    runner, node = running
    node.entries([granted(rights.WRITE_TOPIC, "t"), granted(rights.READ_TOPIC, "t")])
    answer = runner.run(node.ask(both(batch_of("secret"), "t"), 9))
    assert by_topic(answer) == {"secret": [29], "t": [0]}
    ends = {name: node.node._replicas.led(name, 0).log.end_offset for name in ("t", "secret")}
    assert ends == {"t": 1, "secret": 0}


@pytest.mark.parametrize("names", [("secret",), ("secret", "t")])
def test_a_denied_produce_without_acks_closes_the_connection(
    running: Running, names: tuple[str, ...]
) -> None:
    runner, node = running
    node.entries([granted(rights.WRITE_TOPIC, "t")])
    request = batch_of(names[0], acks=0)
    for name in names[1:]:
        both(request, name)
    with pytest.raises(CorruptRequest, match="TOPIC_AUTHORIZATION_FAILED"):
        runner.run(node.ask(request, 9))
    assert node.node._replicas.led("t", 0).log.end_offset == len(names) - 1
    assert node.node._replicas.led("secret", 0).log.end_offset == 0


def test_a_client_id_does_not_open_internal_topics(running: Running) -> None:
    """S56: KIP-1246's ``__admin_client`` needs Alter on the cluster as well."""
    runner, node = running
    topic = "__consumer_offsets"
    node.entries([granted(rights.WRITE_TOPIC, topic)])
    ask = batch_of(topic)
    assert codes(runner.run(node.ask(ask, 9, client_id="test"))) == [17]
    assert codes(runner.run(node.ask(ask, 9, client_id="__admin_client"))) == [29]
    node.entries(
        [granted(rights.WRITE_TOPIC, topic), granted(rights.ALTER_CLUSTER, "kafka-cluster")]
    )
    assert codes(runner.run(node.ask(ask, 9, client_id="__admin_client"))) == [0]


def test_nobody_but_a_node_writes_the_audit_topic(running: Running) -> None:
    """S56: by no entry; a node without one."""
    runner, node = running
    audit = "__barnabas_audit"
    node.entries(
        [granted(rights.WRITE_TOPIC, audit), granted(rights.ALTER_CLUSTER, "kafka-cluster")]
    )
    for client_id in ("test", "__admin_client"):
        answer = runner.run(node.ask(batch_of(audit), 9, client_id=client_id))
        assert codes(answer) == [17]
    node.entries([])
    stranger = SomePeer(principal=ALICE, is_internal=True)
    proved = SomePeer(principal="User:barnabas", is_internal=True, is_node=True)
    assert codes(runner.run(node.ask(batch_of(audit), 9, stranger))) == [29]
    assert codes(runner.run(node.ask(batch_of(audit), 9, proved))) == [3]


def test_a_node_follows_and_obeys_without_entries(running: Running) -> None:
    """S55: ClusterAction, Describe and Alter on the cluster, Describe and Read on topics."""
    runner, node = running
    node.entries([])
    peer = SomePeer(principal="User:barnabas", is_internal=True, is_node=True)
    request = fetching("t", replica_id=9)
    assert by_topic(runner.run(node.ask(request, 12, peer))) == {"t": [6]}
    assert by_topic(runner.run(node.ask(fetching("t"), 12, peer))) == {"t": [0]}
    allowed = {
        kind: {one for one in Operation if node.acls.authorizer.allows(peer, one, kind, "t")}
        for kind in (ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP)
    }
    assert allowed == {
        ResourceType.CLUSTER: {Operation.CLUSTER_ACTION, Operation.DESCRIBE, Operation.ALTER},
        ResourceType.TOPIC: {Operation.DESCRIBE, Operation.READ},
        ResourceType.GROUP: set(),
    }


def test_a_fetch_session_asks_again_for_every_partition_it_remembers(running: Running) -> None:
    """S98: a right that is gone is gone for what a session was begun with, too."""
    runner, node = running
    node.entries([granted(rights.READ_TOPIC, "t"), granted(rights.READ_TOPIC, "secret")])

    async def story() -> None:
        begun = await node.ask(fetching("t", "secret", session=(0, 0)), 12)
        assert by_topic(begun) == {"t": [0], "secret": [0]}
        node.entries([granted(rights.READ_TOPIC, "t")])
        again = fetching(session=(begun.session_id, 1), max_wait_ms=1000, min_bytes=1)
        assert by_topic(await node.ask(again, 12)) == {"secret": [29]}
        node.entries([granted(rights.READ_TOPIC, "t"), granted(rights.READ_TOPIC, "secret")])
        later = fetching(session=(begun.session_id, 2))
        assert by_topic(await node.ask(later, 12)) == {"secret": [0]}

    runner.run(story())


def test_a_fetch_that_waits_is_judged_again_when_it_wakes(running: Running) -> None:
    """S97."""
    runner, node = running
    node.entries([granted(rights.READ_TOPIC, "t")])

    async def story() -> Any:
        request = fetching("t", max_wait_ms=60_000, min_bytes=1)
        waiting = asyncio.ensure_future(node.ask(request, 12))
        await asyncio.sleep(1)
        assert not waiting.done()
        node.entries([])
        assert codes(await node.ask(batch_of("t"), 9, SUPER)) == [0]
        return await waiting

    answer = runner.run(story())
    assert by_topic(answer) == {"t": [29]}
    assert not answer.responses[0].partitions[0].records


def test_an_unknown_id_is_unknown_to_everybody(running: Running) -> None:
    """The matrix, Fetch 13: 100 comes first."""
    runner, node = running
    node.entries([])
    request = fetching("")
    request.topics[0].topic_id = bytes(range(16))
    assert codes(runner.run(node.ask(request, 13))) == [0, 100]
    request.topics[0].topic_id = node.node._metadata.snapshot.topic_ids["secret"]
    assert codes(runner.run(node.ask(request, 13))) == [0, 29]


def test_denied_records_are_not_deleted(running: Running) -> None:
    runner, node = running
    node.entries([])
    assert codes(runner.run(node.ask(batch_of("t"), 9, SUPER))) == [0]
    request = delete_records.DeleteRecordsRequest(
        topics=[
            delete_records.Topic(
                name="t", partitions=[delete_records.Partition(partition_index=0, offset=1)]
            )
        ],
        timeout_ms=1000,
    )
    assert codes(runner.run(node.ask(request, 2))) == [29]
    assert node.node._replicas.led("t", 0).log.start_offset == 0


# -- what is shown ---------------------------------------------------------------------------------


def test_metadata_of_all_topics_leaves_the_hidden_ones_out(running: Running) -> None:
    runner, node = running
    node.entries([granted(rights.DESCRIBE_TOPIC, "t")])
    answer = runner.run(node.ask(metadata.MetadataRequest(topics=None), 9))
    assert by_topic(answer) == {"t": [0, 0]}


def test_metadata_by_id_hides_the_name(running: Running) -> None:
    """An id is no secret: unknown 100, else 29 and no name."""
    runner, node = running
    node.entries([])
    secret = node.node._metadata.snapshot.topic_ids["secret"]
    request = metadata.MetadataRequest(
        topics=[
            metadata.Topic(name=None, topic_id=secret),
            metadata.Topic(name=None, topic_id=bytes(range(16))),
        ]
    )
    answer = runner.run(node.ask(request, 12))
    assert [(one.error_code, one.name, one.topic_id) for one in answer.topics] == [
        (29, None, secret),
        (100, None, bytes(range(16))),
    ]


def test_metadata_goes_by_the_id_where_a_client_of_java_puts_an_empty_name_beside_it(
    running: Running,
) -> None:
    runner, node = running
    node.entries([granted(rights.DESCRIBE_TOPIC, "t")])
    ids = node.node._metadata.snapshot.topic_ids
    asked = [ids["t"], ids["secret"], bytes(range(16))]
    request = metadata.MetadataRequest(
        topics=[metadata.Topic(name="", topic_id=one) for one in asked]
    )
    answer = runner.run(node.ask(request, 12))
    assert [(one.error_code, one.name, one.topic_id) for one in answer.topics] == [
        (0, "t", asked[0]),
        (29, None, asked[1]),
        (100, None, asked[2]),
    ]
    early = runner.run(node.ask(request, 11))
    assert {one.error_code for one in early.topics} == {42}


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], 29),
        ([granted(rights.DESCRIBE_TOPIC, "new")], 29),
        ([granted(rights.DESCRIBE_TOPIC, "new"), granted(rights.CREATE_TOPIC, "new")], 5),
        (
            [
                granted(rights.DESCRIBE_TOPIC, "new"),
                granted(rights.CREATE_CLUSTER, "kafka-cluster"),
            ],
            5,
        ),
        ([granted(rights.CREATE_CLUSTER, "kafka-cluster")], 29),
    ],
)
def test_a_topic_is_created_for_who_may_create_it(
    running: Running, entries: list[AclBinding], code: int
) -> None:
    """And a denied one has no side effect, S54."""
    runner, node = running
    node.entries(entries)

    async def story() -> bool:
        answer = await node.ask(metadata.MetadataRequest(topics=[metadata.Topic(name="new")]), 9)
        assert by_topic(answer) == {"new": [code]}
        await asyncio.sleep(5)
        return "new" in node.node._metadata.snapshot.topics

    assert runner.run(story()) is (code == 5)


def test_bit_fields_say_what_this_peer_may_do(running: Running) -> None:
    """S44: cluster without Describe 0; what is not asked for is -2^31."""
    runner, node = running
    node.entries(
        [
            granted(rights.READ_TOPIC, "t"),
            granted(rights.DESCRIBE_GROUP, "g"),
            granted(rights.DELETE_GROUP, "g"),
        ]
    )
    asking = metadata.MetadataRequest(
        topics=[metadata.Topic(name="t")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    told = runner.run(node.ask(asking, 8))
    read_and_describe = 1 << 3 | 1 << 8
    assert told.topics[0].topic_authorized_operations == read_and_describe
    assert told.cluster_authorized_operations == 0
    silent = runner.run(node.ask(metadata.MetadataRequest(topics=[metadata.Topic(name="t")]), 8))
    assert silent.topics[0].topic_authorized_operations == -(2**31)
    assert silent.cluster_authorized_operations == -(2**31)
    groups = describe_groups.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    described = runner.run(node.ask(groups, 5))
    assert described.groups[0].authorized_operations == 1 << 6 | 1 << 8
    cluster = describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert runner.run(node.ask(cluster, 0)).cluster_authorized_operations == 0
    node.entries([granted(rights.ALTER_CLUSTER, "kafka-cluster")])
    shown = runner.run(node.ask(cluster, 0))
    assert shown.cluster_authorized_operations == 1 << 7 | 1 << 8
    everything_else = runner.run(node.ask(cluster, 0, SUPER))
    assert everything_else.cluster_authorized_operations == 8096


def test_groups_are_listed_as_far_as_they_may_be_described(running: Running) -> None:
    runner, node = running
    shown = {}
    for label, entries in {
        "none": [],
        "one": [granted(rights.DESCRIBE_GROUP, "g")],
        "cluster": [granted(rights.DESCRIBE_CLUSTER, "kafka-cluster")],
    }.items():
        node.entries(entries)
        answer = runner.run(node.ask(list_groups.ListGroupsRequest(), 4))
        assert answer.error_code == 0
        shown[label] = {group.group_id for group in answer.groups}
    assert shown == {"none": set(), "one": {"g"}, "cluster": {"g", "hidden"}}


def test_offsets_of_all_topics_leave_the_hidden_ones_out(running: Running) -> None:
    runner, node = running
    node.entries([granted(rights.DESCRIBE_GROUP, "g"), granted(rights.DESCRIBE_TOPIC, "t")])
    asked = offset_fetch.OffsetFetchRequest(group_id="g", topics=None)
    answer = runner.run(node.ask(asked, 7))
    assert (answer.error_code, by_topic(answer)) == (0, {"t": [0]})
    several = offset_fetch.OffsetFetchRequest(
        groups=[
            offset_fetch.Group(group_id="g", topics=None),
            offset_fetch.Group(group_id="hidden", topics=None),
        ]
    )
    answer = runner.run(node.ask(several, 8))
    found = {one.group_id: (one.error_code, by_topic(one)) for one in answer.groups}
    assert found == {"g": (0, {"t": [0]}), "hidden": (30, {})}


def test_coordinators_are_named_of_groups_that_may_be_described(running: Running) -> None:
    runner, node = running
    node.entries([granted(rights.DESCRIBE_GROUP, "g")])
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["hidden", "g"])
    answer = runner.run(node.ask(request, 4))
    assert {one.key: one.error_code for one in answer.coordinators} == {"g": 0, "hidden": 30}


# -- topics ----------------------------------------------------------------------------------------


def test_a_topic_is_created_and_its_settings_hidden(running: Running) -> None:
    """The matrix, CreateTopics: topic_config_error_code 29, counts -1; the denied is not made."""
    runner, node = running
    node.entries([granted(rights.CREATE_TOPIC, "mine")])
    topics = [
        create_topics.Topic(name=name, num_partitions=1, replication_factor=1)
        for name in ("mine", "theirs", "theirs too", "theirs too")
    ]
    request = create_topics.CreateTopicsRequest(topics=topics, timeout_ms=5000)
    answer = runner.run(node.ask(request, 7))
    found = {one.name: one for one in answer.topics}
    assert {name: one.error_code for name, one in found.items()} == {
        "mine": 0,
        "theirs": 29,
        "theirs too": 42,
    }
    assert (found["mine"].topic_config_error_code, found["mine"].num_partitions) == (29, -1)
    assert not found["mine"].configs
    assert set(node.node._metadata.snapshot.topics) >= {"mine"}
    assert "theirs" not in node.node._metadata.snapshot.topics


def test_topics_are_deleted_by_id_by_who_may_describe_and_delete_them(running: Running) -> None:
    """The matrix, DeleteTopics: without Describe no name; without Delete the name."""
    runner, node = running
    secret = node.node._metadata.snapshot.topic_ids["secret"]
    request = delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.Topic(name=None, topic_id=secret)], timeout_ms=5000
    )
    outcomes = []
    for entries in (
        [],
        [granted(rights.DESCRIBE_TOPIC, "secret")],
        [granted(rights.DELETE_TOPIC, "secret")],
    ):
        node.entries(entries)
        (told,) = runner.run(node.ask(request, 6)).responses
        outcomes.append((told.error_code, told.name))
    assert outcomes == [(29, None), (29, "secret"), (0, "secret")]


# -- groups and transactions -----------------------------------------------------------------------


def test_the_permitted_part_of_a_commit_is_kept_and_the_rest_is_not(running: Running) -> None:
    runner, node = running
    node.entries([granted(rights.READ_GROUP, "g"), granted(rights.READ_TOPIC, "t")])
    answer = runner.run(node.ask(commit("g", "t", "secret", "nowhere", offset=8), 8))
    assert by_topic(answer) == {"t": [0], "secret": [29], "nowhere": [29]}
    asked = offset_fetch.OffsetFetchRequest(group_id="g", topics=None)
    kept = runner.run(node.ask(asked, 7, SUPER))
    offsets = {one.name: one.partitions[0].committed_offset for one in kept.topics}
    assert offsets == {"t": 8, "secret": 7}


def test_what_one_peer_is_denied_is_not_told_to_the_next(running: Running) -> None:
    """Coordinators give one answer to many: a guard that wrote into it denied everybody."""
    runner, node = running
    node.entries([granted(rights.READ_GROUP, "g"), granted(rights.READ_TOPIC, "t")])
    assert by_topic(runner.run(node.ask(commit("g", "t", "secret"), 8))) == {
        "t": [0],
        "secret": [29],
    }
    assert by_topic(runner.run(node.ask(commit("g", "t"), 8))) == {"t": [0]}
    assert by_topic(runner.run(node.ask(commit("g", "t"), 8, SUPER))) == {"t": [0]}


def joining(member_id: str = "", name: str = "one") -> join_group.JoinGroupRequest:
    return join_group.JoinGroupRequest(
        group_id="joined",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[join_group.Protocol(name="range", metadata=name.encode())],
    )


def test_a_member_that_lost_its_right_is_told_when_its_join_is_answered(running: Running) -> None:
    """S97: judged again at wake-up; before, at once."""
    runner, node = running
    node.entries([granted(rights.READ_GROUP, "joined")])

    async def story() -> tuple[int, int]:
        first = asyncio.ensure_future(node.ask(joining(), 3))
        await asyncio.sleep(0.1)
        assert not first.done()
        node.entries([])
        joined = await first
        left = leave_group.LeaveGroupRequest(group_id="joined", member_id=joined.member_id)
        return joined.error_code, (await node.ask(left, 1)).error_code

    assert runner.run(story()) == (30, 30)


def test_a_member_whose_rights_stay_is_not_disturbed_by_other_changes(running: Running) -> None:
    runner, node = running
    node.entries([granted(rights.READ_GROUP, "joined")])

    async def story() -> list[int]:
        first = asyncio.ensure_future(node.ask(joining(), 3))
        await asyncio.sleep(0.1)
        node.entries([granted(rights.READ_GROUP, "joined"), granted(rights.READ_TOPIC, "t")])
        joined = await first
        synced = sync_group.SyncGroupRequest(
            group_id="joined",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[sync_group.Assignment(member_id=joined.member_id, assignment=b"a")],
        )
        return [joined.error_code, (await node.ask(synced, 3)).error_code]

    assert runner.run(story()) == [0, 0]


def test_transactions_are_shown_as_far_as_they_may_be_described(running: Running) -> None:
    runner, node = running
    node.entries(everything(EVERYBODY))

    async def begin() -> None:
        async def init() -> Any:
            asked = init_producer_id.InitProducerIdRequest(
                transactional_id="x", transaction_timeout_ms=60_000
            )
            await node.ask(find_coordinator.FindCoordinatorRequest(key="x", key_type=1), 2, SUPER)
            made = await node.ask(asked, 4)
            return made if made.error_code == 0 else None

        made = await eventually(init)
        added = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=[
                add_partitions_to_txn.Topic(name=name, partitions=[0]) for name in ("t", "secret")
            ],
        )
        assert codes(await node.ask(added, 3)) == [0, 0, 0]
        node.entries(
            [
                granted(rights.WRITE_ID, "x"),
                granted(rights.WRITE_TOPIC, "t"),
            ]
        )
        again = await node.ask(added, 3)
        assert codes(again) == [0, 55, 29], "one is refused, so the other is not tried"

    runner.run(begin())
    asked = describe_transactions.DescribeTransactionsRequest(transactional_ids=["x", "y"])
    described = runner.run(node.ask(asked, 0))
    found = {one.transactional_id: one for one in described.transaction_states}
    assert {name: one.error_code for name, one in found.items()} == {"x": 0, "y": 53}
    assert [topic.topic for topic in found["x"].topics] == ["t"]
    listing = list_transactions.ListTransactionsRequest()
    assert [
        one.transactional_id for one in runner.run(node.ask(listing, 0)).transaction_states
    ] == ["x"]
    node.entries([])
    assert not runner.run(node.ask(listing, 0)).transaction_states
    ended = end_txn.EndTxnRequest(transactional_id="x", producer_id=0, committed=True)
    assert codes(runner.run(node.ask(ended, 3))) == [53]


def test_metrics_tell_entries_and_decisions(running: Running) -> None:
    """S77."""
    runner, node = running
    node.entries([granted(rights.READ_TOPIC, "t"), granted(rights.WRITE_TOPIC, "t")])
    node.acls.authorizer.decided.clear()
    runner.run(node.ask(fetching("t", "secret"), 12))
    lines = [line.rstrip() for line in access_control_families(node.acls)]
    assert "barnabas_acls 2" in lines
    for result in ("allowed", "denied"):
        line = f'barnabas_authorization_decisions_total{{result="{result}",type="Topic"}} 1'
        assert line in lines
    assert not list(access_control_families(None))

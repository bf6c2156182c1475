"""Each API of the matrix, asked about topic ``t``, group ``g``, id ``x`` and the cluster.

Requests change nothing where they are allowed: they are only validated, or name what is not there.
``expected`` is the matrix of docs/spec/security.md §3 once more, written by hand: which codes of
denial an answer has, by what the peer may do. One idea, though long: a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from barnabas.broker.handlers import guards as rights
from barnabas.broker.handlers.guards import Right
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    consumer_group_describe,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_config_resources,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_features,
    update_metadata,
    write_txn_markers,
)
from barnabas.protocol.records.batch import build_batch

TOPIC: Final = "t"
GROUP: Final = "g"
ID: Final = "x"
OTHER_ID: Final = bytes(range(16))
"""Of no topic."""

Can = Callable[[Right], bool]


class Asked(NamedTuple):
    """One question and what it must be answered."""

    label: str
    request: Callable[[str], Any]
    """The request about a topic of this name, where it names any."""
    version: int
    needs: tuple[Right, ...]
    """All that can change the answer."""
    expected: Callable[[Can], set[int]]
    topic: str = TOPIC
    group: str = GROUP
    is_internal: bool = False
    """Asked on the inter-broker listener, by who has proved nothing."""


def _first(*wants: tuple[Right, int]) -> Callable[[Can], set[int]]:
    """The code of the first right that is lacking."""

    def expected(can: Can) -> set[int]:
        return next(({code} for right, code in wants if not can(right)), set())

    return expected


def _any(code: int, *wants: Right) -> Callable[[Can], set[int]]:
    """The code, unless one of the rights is there."""
    return lambda can: set() if any(map(can, wants)) else {code}


def _batch(*, is_transactional: bool = False) -> bytes:
    if is_transactional:
        return bytes(
            build_batch(
                [(b"k", b"v")],
                timestamp_ms=1,
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
        )
    return bytes(build_batch([(b"k", b"v")], timestamp_ms=1))


def _produce(name: str, *, transactional_id: str | None = None, **how: Any) -> Any:
    partition = produce.Partition(index=0, records=_batch(**how))
    return produce.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[produce.Topic(name=name, partition_data=[partition])],
    )


def _fetch(name: str) -> Any:
    partition = fetch.Partition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return fetch.FetchRequest(
        max_wait_ms=0, topics=[fetch.Topic(topic=name, partitions=[partition])]
    )


def _as_follower(name: str) -> Any:
    request = _fetch(name)
    request.replica_id = 2
    return request


def _resources(module: Any, kind: int, **fields: Any) -> Callable[[str], Any]:
    def request(name: str) -> Any:
        named = {2: name, 32: GROUP}.get(kind, "1")
        resource = module.Resource(resource_type=kind, resource_name=named)
        made = next(getattr(module, item) for item in dir(module) if item.endswith("Request"))
        return made(resources=[resource], **fields)

    return request


def _commit(name: str) -> Any:
    partition = offset_commit.Partition(partition_index=0, committed_offset=7)
    return offset_commit.OffsetCommitRequest(
        group_id=GROUP, topics=[offset_commit.Topic(name=name, partitions=[partition])]
    )


def _txn_commit(name: str) -> Any:
    partition = txn_offset_commit.Partition(partition_index=0, committed_offset=7)
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id=GROUP,
        producer_id=99,
        topics=[txn_offset_commit.Topic(name=name, partitions=[partition])],
    )


def _finding(kind: int, key: str) -> Callable[[str], Any]:
    return lambda name: find_coordinator.FindCoordinatorRequest(
        key=key, key_type=kind, coordinator_keys=[key]
    )


ASKED: Final = (
    Asked("produce", _produce, 9, (rights.WRITE_TOPIC,), _first((rights.WRITE_TOPIC, 29))),
    Asked(
        "produce in a transaction",
        lambda name: _produce(name, transactional_id=ID, is_transactional=True),
        9,
        (rights.WRITE_ID, rights.WRITE_TOPIC),
        _first((rights.WRITE_ID, 53), (rights.WRITE_TOPIC, 29)),
    ),
    Asked(
        "produce with an id and no transaction",
        lambda name: _produce(name, transactional_id=ID),
        9,
        (rights.WRITE_ID, rights.WRITE_TOPIC),
        _first((rights.WRITE_TOPIC, 29)),
    ),
    Asked(
        "produce of a transaction without an id",  # S81: CVE-2018-17196
        lambda name: _produce(name, is_transactional=True),
        9,
        (rights.WRITE_ID, rights.WRITE_TOPIC),
        lambda can: {53},
    ),
    Asked("fetch", _fetch, 12, (rights.READ_TOPIC,), _first((rights.READ_TOPIC, 29))),
    Asked("fetch, old format", _fetch, 2, (rights.READ_TOPIC,), _first((rights.READ_TOPIC, 29))),
    Asked(  # S80: CVE-2018-1288
        "fetch as a follower from a client",
        _as_follower,
        12,
        (rights.CLUSTER_ACTION, rights.READ_TOPIC),
        lambda can: {29},
    ),
    Asked(
        "fetch as a follower",
        _as_follower,
        12,
        (rights.CLUSTER_ACTION, rights.READ_TOPIC),
        _first((rights.CLUSTER_ACTION, 29)),
        is_internal=True,
    ),
    Asked(
        "list offsets",
        lambda name: list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.Topic(
                    name=name, partitions=[list_offsets.Partition(partition_index=0, timestamp=-1)]
                )
            ],
        ),
        7,
        (rights.DESCRIBE_TOPIC,),
        _first((rights.DESCRIBE_TOPIC, 29)),
    ),
    Asked(
        "list offsets as a follower",
        lambda name: list_offsets.ListOffsetsRequest(
            replica_id=2,
            topics=[
                list_offsets.Topic(
                    name=name, partitions=[list_offsets.Partition(partition_index=0, timestamp=-1)]
                )
            ],
        ),
        7,
        (rights.DESCRIBE_TOPIC, rights.CLUSTER_ACTION),
        _any(29, rights.DESCRIBE_TOPIC, rights.CLUSTER_ACTION),
        is_internal=True,
    ),
    Asked(
        "leader epochs",
        lambda name: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.Topic(
                    topic=name,
                    partitions=[offset_for_leader_epoch.Partition(partition=0, leader_epoch=0)],
                )
            ]
        ),
        4,
        (rights.DESCRIBE_TOPIC, rights.CLUSTER_ACTION),
        _any(29, rights.DESCRIBE_TOPIC, rights.CLUSTER_ACTION),
    ),
    Asked(
        "metadata",
        lambda name: metadata.MetadataRequest(
            topics=[metadata.Topic(name=name)], allow_auto_topic_creation=False
        ),
        9,
        (rights.DESCRIBE_TOPIC,),
        _first((rights.DESCRIBE_TOPIC, 29)),
    ),
    Asked(
        "leader and isr",
        lambda name: leader_and_isr.LeaderAndIsrRequest(controller_id=1, controller_epoch=-1),
        6,
        (rights.CLUSTER_ACTION,),
        _first((rights.CLUSTER_ACTION, 31)),
        is_internal=True,
    ),
    Asked(
        "stop replica",
        lambda name: stop_replica.StopReplicaRequest(controller_id=1, controller_epoch=-1),
        3,
        (rights.CLUSTER_ACTION,),
        _first((rights.CLUSTER_ACTION, 31)),
        is_internal=True,
    ),
    Asked(
        "update metadata",
        lambda name: update_metadata.UpdateMetadataRequest(controller_id=1, controller_epoch=-1),
        6,
        (rights.CLUSTER_ACTION,),
        _first((rights.CLUSTER_ACTION, 31)),
        is_internal=True,
    ),
    Asked(
        "controlled shutdown",
        lambda name: controlled_shutdown.ControlledShutdownRequest(broker_id=9),
        3,
        (rights.CLUSTER_ACTION,),
        _first((rights.CLUSTER_ACTION, 31)),
        is_internal=True,
    ),
    Asked(
        "offset commit",
        _commit,
        8,
        (rights.READ_GROUP, rights.READ_TOPIC),
        _first((rights.READ_GROUP, 30), (rights.READ_TOPIC, 29)),
    ),
    *(
        Asked(
            f"offset fetch {version}",
            lambda name: offset_fetch.OffsetFetchRequest(
                group_id=GROUP, topics=[offset_fetch.Topic(name=name, partition_indexes=[0])]
            ),
            version,
            (rights.DESCRIBE_GROUP, rights.DESCRIBE_TOPIC),
            _first((rights.DESCRIBE_GROUP, 30), (rights.DESCRIBE_TOPIC, 29)),
        )
        for version in (1, 5, 7)
    ),
    Asked(
        "offset fetch 8",
        lambda name: offset_fetch.OffsetFetchRequest(
            groups=[
                offset_fetch.Group(
                    group_id=GROUP, topics=[offset_fetch.Topic(name=name, partition_indexes=[0])]
                )
            ]
        ),
        8,
        (rights.DESCRIBE_GROUP, rights.DESCRIBE_TOPIC),
        _first((rights.DESCRIBE_GROUP, 30), (rights.DESCRIBE_TOPIC, 29)),
    ),
    *(
        Asked(
            f"find coordinator of a {label}, {version}",
            _finding(kind, key),
            version,
            (right,),
            _first((right, code)),
        )
        for label, kind, key, right, code in (
            ("group", 0, GROUP, rights.DESCRIBE_GROUP, 30),
            ("transaction", 1, ID, rights.DESCRIBE_ID, 53),
        )
        for version in (2, 4)
    ),
    Asked(
        "join",
        lambda name: join_group.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="nobody",
            protocol_type="consumer",
            protocols=[join_group.Protocol(name="range", metadata=b"")],
        ),
        5,
        (rights.READ_GROUP,),
        _first((rights.READ_GROUP, 30)),
    ),
    Asked(
        "heartbeat",
        lambda name: heartbeat.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="no"),
        4,
        (rights.READ_GROUP,),
        _first((rights.READ_GROUP, 30)),
    ),
    Asked(
        "leave",
        lambda name: leave_group.LeaveGroupRequest(
            group_id=GROUP, members=[leave_group.Member(member_id="no")]
        ),
        4,
        (rights.READ_GROUP,),
        _first((rights.READ_GROUP, 30)),
    ),
    Asked(
        "sync",
        lambda name: sync_group.SyncGroupRequest(
            group_id=GROUP,
            generation_id=1,
            member_id="no",
            protocol_type="consumer",
            protocol_name="range",
        ),
        5,
        (rights.READ_GROUP,),
        _first((rights.READ_GROUP, 30)),
    ),
    Asked(
        "describe groups",
        lambda name: describe_groups.DescribeGroupsRequest(groups=[GROUP]),
        5,
        (rights.DESCRIBE_GROUP,),
        _first((rights.DESCRIBE_GROUP, 30)),
    ),
    Asked(
        "create topics",
        lambda name: create_topics.CreateTopicsRequest(
            topics=[create_topics.Topic(name=name, num_partitions=1, replication_factor=1)],
            validate_only=True,
        ),
        4,
        (rights.CREATE_CLUSTER, rights.CREATE_TOPIC),
        _any(29, rights.CREATE_CLUSTER, rights.CREATE_TOPIC),
    ),
    Asked(
        "delete topics",
        lambda name: delete_topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=10),
        5,
        (rights.DELETE_TOPIC,),
        _first((rights.DELETE_TOPIC, 29)),
        topic="gone",
    ),
    Asked(
        "delete topics that have ids",
        lambda name: delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.Topic(name=name)], timeout_ms=10
        ),
        6,
        (rights.DELETE_TOPIC,),
        _first((rights.DELETE_TOPIC, 29)),
        topic="gone",
    ),
    Asked(
        "delete records",
        lambda name: delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.Topic(
                    name=name, partitions=[delete_records.Partition(partition_index=0, offset=0)]
                )
            ],
            timeout_ms=100,
        ),
        2,
        (rights.DELETE_TOPIC,),
        _first((rights.DELETE_TOPIC, 29)),
    ),
    Asked(
        "init producer id of a transaction",
        lambda name: init_producer_id.InitProducerIdRequest(
            transactional_id=ID, transaction_timeout_ms=-5
        ),
        4,
        (rights.WRITE_ID,),
        _first((rights.WRITE_ID, 53)),
    ),
    Asked(
        "init producer id",
        lambda name: init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1000
        ),
        4,
        (rights.IDEMPOTENT_WRITE, rights.WRITE_TOPIC),
        _any(31, rights.IDEMPOTENT_WRITE, rights.WRITE_TOPIC),
    ),
    Asked(
        "add partitions",
        lambda name: add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=99,
            v3_and_below_topics=[add_partitions_to_txn.Topic(name=name, partitions=[0])],
        ),
        3,
        (rights.WRITE_ID, rights.WRITE_TOPIC),
        _first((rights.WRITE_ID, 53), (rights.WRITE_TOPIC, 29)),
    ),
    Asked(
        "add partitions of a batch",
        lambda name: add_partitions_to_txn.AddPartitionsToTxnRequest(
            transactions=[
                add_partitions_to_txn.Transaction(
                    transactional_id=ID,
                    producer_id=99,
                    verify_only=True,
                    topics=[add_partitions_to_txn.Topic(name="t", partitions=[0])],
                )
            ]
        ),
        4,
        (rights.CLUSTER_ACTION,),
        _first((rights.CLUSTER_ACTION, 31)),
    ),
    Asked(
        "add offsets",
        lambda name: add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=99, group_id=GROUP
        ),
        3,
        (rights.WRITE_ID, rights.READ_GROUP),
        _first((rights.WRITE_ID, 53), (rights.READ_GROUP, 30)),
    ),
    Asked(
        "end transaction",
        lambda name: end_txn.EndTxnRequest(transactional_id=ID, producer_id=99),
        3,
        (rights.WRITE_ID,),
        _first((rights.WRITE_ID, 53)),
    ),
    Asked(
        "write markers",
        lambda name: write_txn_markers.WriteTxnMarkersRequest(
            markers=[
                write_txn_markers.Marker(
                    producer_id=99,
                    topics=[write_txn_markers.Topic(name="nowhere", partition_indexes=[0])],
                )
            ]
        ),
        1,
        (rights.ALTER_CLUSTER, rights.CLUSTER_ACTION),
        _any(31, rights.ALTER_CLUSTER, rights.CLUSTER_ACTION),
    ),
    Asked(
        "commit offsets in a transaction",
        _txn_commit,
        3,
        (rights.WRITE_ID, rights.READ_GROUP, rights.READ_TOPIC),
        _first((rights.WRITE_ID, 53), (rights.READ_GROUP, 30), (rights.READ_TOPIC, 29)),
    ),
    Asked(
        "describe acls",
        lambda name: describe_acls.DescribeAclsRequest(
            resource_type_filter=1, operation=1, permission_type=1, pattern_type_filter=1
        ),
        3,
        (rights.DESCRIBE_CLUSTER,),
        _first((rights.DESCRIBE_CLUSTER, 31)),
    ),
    Asked(
        "create acls",
        lambda name: create_acls.CreateAclsRequest(
            creations=[create_acls.Creation(resource_type=2, resource_name="")]
        ),
        3,
        (rights.ALTER_CLUSTER,),
        _first((rights.ALTER_CLUSTER, 31)),
    ),
    Asked(
        "delete acls",
        lambda name: delete_acls.DeleteAclsRequest(
            filters=[
                delete_acls.Filter(
                    resource_type_filter=2,
                    resource_name_filter="nothing is here",
                    pattern_type_filter=3,
                    operation=1,
                    permission_type=1,
                )
            ]
        ),
        3,
        (rights.ALTER_CLUSTER,),
        _first((rights.ALTER_CLUSTER, 31)),
    ),
    *(
        Asked(
            f"{label} of a {of}",
            _resources(module, kind, **fields),
            module_version,
            (right,),
            _first((right, code)),
        )
        for label, module, module_version, fields, topic_right, group_right, cluster_right in (
            (
                "describe settings",
                describe_configs,
                4,
                {},
                rights.DESCRIBE_TOPIC_CONFIGS,
                rights.DESCRIBE_GROUP_CONFIGS,
                rights.DESCRIBE_CLUSTER_CONFIGS,
            ),
            (
                "replace settings",
                alter_configs,
                2,
                {"validate_only": True},
                rights.ALTER_TOPIC_CONFIGS,
                rights.ALTER_GROUP_CONFIGS,
                rights.ALTER_CLUSTER_CONFIGS,
            ),
            (
                "alter settings",
                incremental_alter_configs,
                1,
                {"validate_only": True},
                rights.ALTER_TOPIC_CONFIGS,
                rights.ALTER_GROUP_CONFIGS,
                rights.ALTER_CLUSTER_CONFIGS,
            ),
        )
        for of, kind, right, code in (
            ("topic", 2, topic_right, 29),
            ("group", 32, group_right, 30),
            ("node", 4, cluster_right, 31),
            ("logger", 8, cluster_right, 31),
        )
        if (label, of) != ("replace settings", "logger")
    ),
    Asked(
        "describe log directories",
        lambda name: describe_log_dirs.DescribeLogDirsRequest(topics=[]),
        4,
        (rights.DESCRIBE_CLUSTER,),
        _first((rights.DESCRIBE_CLUSTER, 31)),
    ),
    Asked(
        "create partitions",
        lambda name: create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.Topic(name=name, count=2, assignments=None)],
            timeout_ms=10,
            validate_only=True,
        ),
        3,
        (rights.ALTER_TOPIC,),
        _first((rights.ALTER_TOPIC, 29)),
    ),
    Asked(
        "delete groups",
        lambda name: delete_groups.DeleteGroupsRequest(groups_names=["gone"]),
        2,
        (rights.DELETE_GROUP,),
        _first((rights.DELETE_GROUP, 30)),
        group="gone",
    ),
    Asked(
        "elect leaders",
        lambda name: elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions(topic="nowhere", partitions=[0])],
            timeout_ms=10,
        ),
        2,
        (rights.ALTER_CLUSTER,),
        _first((rights.ALTER_CLUSTER, 31)),
    ),
    Asked(
        "reassign",
        lambda name: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            timeout_ms=10,
            topics=[
                alter_partition_reassignments.Topic(
                    name="nowhere",
                    partitions=[alter_partition_reassignments.Partition(partition_index=0)],
                )
            ],
        ),
        0,
        (rights.ALTER_CLUSTER,),
        _first((rights.ALTER_CLUSTER, 31)),
    ),
    Asked(
        "list resources with settings",
        lambda name: list_config_resources.ListConfigResourcesRequest(),
        1,
        (rights.DESCRIBE_CLUSTER_CONFIGS,),
        _first((rights.DESCRIBE_CLUSTER_CONFIGS, 31)),
    ),
    Asked(
        "list reassignments",
        lambda name: list_partition_reassignments.ListPartitionReassignmentsRequest(),
        0,
        (rights.DESCRIBE_CLUSTER,),
        _first((rights.DESCRIBE_CLUSTER, 31)),
    ),
    Asked(
        "delete offsets",
        lambda name: offset_delete.OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                offset_delete.Topic(
                    name=name, partitions=[offset_delete.Partition(partition_index=5)]
                )
            ],
        ),
        0,
        (rights.DELETE_GROUP, rights.READ_TOPIC),
        _first((rights.DELETE_GROUP, 30), (rights.READ_TOPIC, 29)),
    ),
    Asked(
        "consumer group heartbeat",
        lambda name: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id="m", member_epoch=5, subscribed_topic_names=[name]
        ),
        1,
        (rights.READ_GROUP, rights.DESCRIBE_TOPIC),
        _first((rights.READ_GROUP, 30), (rights.DESCRIBE_TOPIC, 29)),
    ),
    Asked(
        "describe consumer groups",
        lambda name: consumer_group_describe.ConsumerGroupDescribeRequest(
            group_ids=[GROUP], include_authorized_operations=True
        ),
        1,
        (rights.DESCRIBE_GROUP,),
        _first((rights.DESCRIBE_GROUP, 30)),
    ),
    Asked(
        "update features",
        lambda name: update_features.UpdateFeaturesRequest(feature_updates=[]),
        1,
        (rights.ALTER_CLUSTER,),
        _first((rights.ALTER_CLUSTER, 31)),
    ),
    Asked(
        "describe producers",
        lambda name: describe_producers.DescribeProducersRequest(
            topics=[describe_producers.Topic(name=name, partition_indexes=[0])]
        ),
        0,
        (rights.READ_TOPIC,),
        _first((rights.READ_TOPIC, 29)),
    ),
    Asked(
        "describe transactions",
        lambda name: describe_transactions.DescribeTransactionsRequest(transactional_ids=[ID]),
        0,
        (rights.DESCRIBE_ID,),
        _first((rights.DESCRIBE_ID, 53)),
    ),
)

ELSEWHERE: Final = frozenset(
    {
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.API_VERSIONS,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.DESCRIBE_CLUSTER,
    }
)
"""Answered to anybody, though not with everything (test_matrix.py says how)."""

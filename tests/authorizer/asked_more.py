"""More questions of the matrix: versions that deny in another shape, listings, quotas, users.

Like those of ``asked_apis.py`` they change nothing where they are allowed. ``LISTINGS`` leave out
what may not be seen and deny nothing; ``ELSEWHERE_SERVED`` has what a node of Kafka serves alone.
Source: docs/spec/security.md §3 (the matrix).
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.broker.handlers import guards as rights
from barnabas.protocol.messages import (
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    describe_client_quotas,
    describe_cluster,
    describe_groups,
    describe_log_dirs,
    describe_user_scram_credentials,
    elect_leaders,
    fetch,
    leave_group,
    list_groups,
    list_transactions,
    metadata,
    offset_fetch,
    sync_group,
)

from .asked_apis import GROUP, OTHER_ID, Asked, _any, _first, _resources

NOBODY: Final = "nobody here"


def _alter_quotas(name: str) -> Any:
    entry = alter_client_quotas.Entry(
        entity=[alter_client_quotas.Entity(entity_type="user", entity_name=NOBODY)],
        ops=[alter_client_quotas.Op(key="producer_byte_rate", value=1000.0)],
    )
    return alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=True)


def _by_unknown_id(name: str) -> Any:
    partition = fetch.Partition(partition=0, partition_max_bytes=1000)
    return fetch.FetchRequest(
        max_wait_ms=0, topics=[fetch.Topic(topic_id=OTHER_ID, partitions=[partition])]
    )


MORE: Final = (
    Asked(
        "describe quotas",
        lambda name: describe_client_quotas.DescribeClientQuotasRequest(
            components=[
                describe_client_quotas.Component(entity_type="user", match_type=0, match=NOBODY)
            ]
        ),
        1,
        (rights.DESCRIBE_CLUSTER_CONFIGS,),
        _first((rights.DESCRIBE_CLUSTER_CONFIGS, 31)),
    ),
    Asked(
        "alter quotas",
        _alter_quotas,
        1,
        (rights.ALTER_CLUSTER_CONFIGS,),
        _first((rights.ALTER_CLUSTER_CONFIGS, 31)),
    ),
    Asked(
        "describe users",
        lambda name: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
            users=[describe_user_scram_credentials.User(name=NOBODY)]
        ),
        0,
        (rights.DESCRIBE_CLUSTER,),
        _first((rights.DESCRIBE_CLUSTER, 31)),
    ),
    Asked(
        "alter users",
        lambda name: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[alter_user_scram_credentials.Deletion(name=NOBODY, mechanism=2)]
        ),
        0,
        (rights.ALTER_CLUSTER,),
        _first((rights.ALTER_CLUSTER, 31)),
    ),
    Asked(
        "replace settings of a logger",  # 42, whoever asks
        _resources(alter_configs, 8, validate_only=True),
        2,
        (rights.ALTER_CLUSTER_CONFIGS,),
        lambda can: set(),
    ),
    Asked(
        "describe log directories, 2",
        lambda name: describe_log_dirs.DescribeLogDirsRequest(topics=[]),
        2,
        (rights.DESCRIBE_CLUSTER,),
        _first((rights.DESCRIBE_CLUSTER, 31)),  # which this version has no field for
    ),
    Asked(
        "elect leaders, 0",
        lambda name: elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions(topic="nowhere", partitions=[0])],
            timeout_ms=10,
        ),
        0,
        (rights.ALTER_CLUSTER,),
        _first((rights.ALTER_CLUSTER, 31)),
    ),
    Asked(
        "leave, 2",
        lambda name: leave_group.LeaveGroupRequest(group_id=GROUP, member_id="no"),
        2,
        (rights.READ_GROUP,),
        _first((rights.READ_GROUP, 30)),
    ),
    Asked(
        "sync without a protocol",
        lambda name: sync_group.SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="no"),
        5,
        (rights.READ_GROUP,),
        lambda can: set(),
    ),
    Asked(
        "offset fetch 0",
        lambda name: offset_fetch.OffsetFetchRequest(
            group_id=GROUP, topics=[offset_fetch.Topic(name=name, partition_indexes=[0])]
        ),
        0,
        (rights.DESCRIBE_GROUP, rights.DESCRIBE_TOPIC),
        _first((rights.DESCRIBE_GROUP, 30), (rights.DESCRIBE_TOPIC, 29)),
    ),
    Asked(
        "describe groups with their operations",
        lambda name: describe_groups.DescribeGroupsRequest(
            groups=[GROUP], include_authorized_operations=True
        ),
        5,
        (rights.DESCRIBE_GROUP,),
        _first((rights.DESCRIBE_GROUP, 30)),
    ),
    Asked(
        "fetch by an unknown id",
        _by_unknown_id,
        13,
        (rights.READ_TOPIC,),
        lambda can: set(),
    ),
    Asked(
        "metadata by an unknown id",
        lambda name: metadata.MetadataRequest(
            topics=[metadata.Topic(name=None, topic_id=OTHER_ID)], allow_auto_topic_creation=False
        ),
        12,
        (rights.DESCRIBE_TOPIC,),
        lambda can: set(),
    ),
    Asked(
        "metadata with operations",
        lambda name: metadata.MetadataRequest(
            topics=[metadata.Topic(name=name)],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        ),
        10,
        (rights.DESCRIBE_TOPIC, rights.DESCRIBE_CLUSTER),
        _first((rights.DESCRIBE_TOPIC, 29)),
    ),
)
"""Served by a node of ours."""

LISTINGS: Final = (
    Asked(
        "list groups",
        lambda name: list_groups.ListGroupsRequest(),
        4,
        (rights.DESCRIBE_CLUSTER, rights.DESCRIBE_GROUP),
        lambda can: set(),
    ),
    Asked(
        "list transactions",
        lambda name: list_transactions.ListTransactionsRequest(),
        0,
        (rights.DESCRIBE_ID,),
        lambda can: set(),
    ),
    Asked(
        "metadata of all topics",
        lambda name: metadata.MetadataRequest(topics=None),
        9,
        (rights.DESCRIBE_TOPIC,),
        lambda can: set(),
    ),
    Asked(
        "offsets of all topics",
        lambda name: offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=None),
        5,
        (rights.DESCRIBE_GROUP, rights.DESCRIBE_TOPIC),
        _first((rights.DESCRIBE_GROUP, 30)),
    ),
    Asked(
        "describe the cluster",
        lambda name: describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=True
        ),
        0,
        (rights.DESCRIBE_CLUSTER,),
        lambda can: set(),
    ),
)
"""They leave out what may not be seen."""

CREATED: Final = Asked(
    "create an entry",
    lambda name: create_acls.CreateAclsRequest(
        creations=[
            create_acls.Creation(
                resource_type=2,
                resource_name="nothing is here",
                resource_pattern_type=3,
                principal="User:nobody",
                host="*",
                operation=3,
                permission_type=2,
            )
        ]
    ),
    3,
    (rights.ALTER_CLUSTER,),
    _first((rights.ALTER_CLUSTER, 31)),
)
"""It changes something: an entry about nobody and nothing."""

SERVED_BY_KAFKA: Final = (
    Asked(
        "move replicas between directories",
        lambda name: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                alter_replica_log_dirs.Dir(
                    path="/nowhere",
                    topics=[alter_replica_log_dirs.Topic(name="nowhere", partitions=[0])],
                )
            ]
        ),
        2,
        (rights.ALTER_CLUSTER,),
        _first((rights.ALTER_CLUSTER, 31)),
    ),
    Asked(
        "alter partition",
        lambda name: alter_partition.AlterPartitionRequest(broker_id=1, broker_epoch=0),
        3,
        (rights.CLUSTER_ACTION,),
        _first((rights.CLUSTER_ACTION, 31)),
        is_internal=True,
    ),
    Asked(
        "allocate producer ids",
        lambda name: allocate_producer_ids.AllocateProducerIdsRequest(broker_id=1, broker_epoch=0),
        0,
        (rights.CLUSTER_ACTION,),
        _any(31, rights.CLUSTER_ACTION),
        is_internal=True,
    ),
)
"""Not by a node of ours, though the matrix has rows for them."""

"""Which rights each API needs, and what who lacks them is answered: the matrix, as data.

A handler without a row here ends the start of the node: nobody forgets to guard a new API. Where
no authorizer is configured no guard is set, and nothing is asked for any request.
``python -m barnabas.broker.handlers.authorization`` prints the table of docs/security.md.
Source: docs/spec/security.md §3 (the matrix); Kafka 3.9 KafkaApis.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.protocol.api import ApiKey

from . import administration_guards as administration
from . import group_guards as groups
from . import guards
from . import record_guards as records
from . import transaction_guards as transactions
from .call import Handler
from .delegation_tokens import CREATE_TOKENS, DESCRIBE_TOKEN, DESCRIBE_TOKENS
from .guards import Guard, GuardContext, Right, open_to_all


@dataclass(frozen=True, slots=True)
class Row:
    """What one API needs; ``guard`` stands before its handler."""

    rights: tuple[Right, ...]
    needs: str
    denied: str
    guard: Guard


def _row(guard: Guard, denied: str, *rights: Right, needs: str = "") -> Row:
    return Row(rights, needs or ", ".join(map(str, rights)) or "-", denied, guard)


_DESCRIBE_CONFIGS: Final = (
    guards.DESCRIBE_TOPIC_CONFIGS,
    guards.DESCRIBE_GROUP_CONFIGS,
    guards.DESCRIBE_CLUSTER_CONFIGS,
)
_ALTER_CONFIGS: Final = (
    guards.ALTER_TOPIC_CONFIGS,
    guards.ALTER_GROUP_CONFIGS,
    guards.ALTER_CLUSTER_CONFIGS,
)
_CONCERNED: Final = "to be its owner or one of its renewers"

MATRIX: Final[Mapping[int, Row]] = {
    ApiKey.PRODUCE: _row(
        records.produce_guard,
        "29 each partition, before 3; 53 all; without acks the connection is closed",
        *(guards.WRITE_TOPIC, guards.WRITE_ID),
        needs="Write Topic; batches of a transaction: Write TransactionalId, first",
    ),
    ApiKey.FETCH: _row(
        open_to_all,
        "29 each partition; since version 13 an unknown id is 100 first",
        *(guards.READ_TOPIC, guards.CLUSTER_ACTION),
        needs="Read Topic; with a replica id ClusterAction Cluster, on the nodes' listener",
    ),
    ApiKey.LIST_OFFSETS: _row(
        records.list_offsets_guard,
        "29 each partition",
        *(guards.DESCRIBE_TOPIC, guards.CLUSTER_ACTION),
        needs="Describe Topic; followers ClusterAction Cluster",
    ),
    ApiKey.METADATA: _row(
        open_to_all,
        "named: 29 and no id; by id: unknown 100, else 29 and no name; all: left out",
        *(guards.DESCRIBE_TOPIC, guards.CREATE_CLUSTER, guards.CREATE_TOPIC),
        needs="Describe Topic; to have it created: Create Cluster or Create Topic",
    ),
    ApiKey.LEADER_AND_ISR: _row(
        administration.leader_and_isr_guard, "31; elsewhere closed", guards.CLUSTER_ACTION
    ),
    ApiKey.STOP_REPLICA: _row(
        administration.stop_replica_guard, "31; elsewhere closed", guards.CLUSTER_ACTION
    ),
    ApiKey.UPDATE_METADATA: _row(
        administration.update_metadata_guard, "31; elsewhere closed", guards.CLUSTER_ACTION
    ),
    ApiKey.CONTROLLED_SHUTDOWN: _row(
        administration.controlled_shutdown_guard, "31; elsewhere closed", guards.CLUSTER_ACTION
    ),
    ApiKey.OFFSET_COMMIT: _row(
        groups.offset_commit_guard,
        "30 all; 29 each partition, before 3",
        *(guards.READ_GROUP, guards.READ_TOPIC),
    ),
    ApiKey.OFFSET_FETCH: _row(
        groups.offset_fetch_guard,
        "30 each group; named topics 29; of all topics left out",
        *(guards.DESCRIBE_GROUP, guards.DESCRIBE_TOPIC),
    ),
    ApiKey.FIND_COORDINATOR: _row(
        groups.find_coordinator_guard,
        "30, 53",
        *(guards.DESCRIBE_GROUP, guards.DESCRIBE_ID),
        needs="Describe Group, or Describe TransactionalId",
    ),
    ApiKey.JOIN_GROUP: _row(groups.join_guard, "30", guards.READ_GROUP),
    ApiKey.HEARTBEAT: _row(groups.heartbeat_guard, "30", guards.READ_GROUP),
    ApiKey.LEAVE_GROUP: _row(groups.leave_guard, "30", guards.READ_GROUP),
    ApiKey.SYNC_GROUP: _row(
        groups.sync_guard, "30; since version 5 without a protocol 23 first", guards.READ_GROUP
    ),
    ApiKey.DESCRIBE_GROUPS: _row(
        groups.describe_groups_guard, "30 each group", guards.DESCRIBE_GROUP
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _row(
        groups.consumer_group_heartbeat_guard,
        "30; a named topic 29; what an expression matches: left out",
        *(guards.READ_GROUP, guards.DESCRIBE_TOPIC),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _row(
        groups.consumer_group_describe_guard,
        "30 each group; 29 and no members where a topic may not be described",
        *(guards.DESCRIBE_GROUP, guards.DESCRIBE_TOPIC),
    ),
    ApiKey.LIST_GROUPS: _row(
        groups.list_groups_guard,
        "left out",
        *(guards.DESCRIBE_CLUSTER, guards.DESCRIBE_GROUP),
        needs="Describe Cluster, or Describe Group of each",
    ),
    ApiKey.SASL_HANDSHAKE: _row(open_to_all, "-"),
    ApiKey.API_VERSIONS: _row(open_to_all, "-"),
    ApiKey.CREATE_TOPICS: _row(
        administration.create_topics_guard,
        "41 first; 29 before 36; settings: their code 29, counts -1",
        *(guards.CREATE_CLUSTER, guards.CREATE_TOPIC, guards.DESCRIBE_TOPIC_CONFIGS),
        needs="Create Cluster or Create Topic; to see settings DescribeConfigs Topic",
    ),
    ApiKey.DELETE_TOPICS: _row(
        administration.delete_topics_guard,
        "41 first; 29 before 3; by id: unknown 100; without Describe 29 and no name",
        *(guards.DELETE_TOPIC, guards.DESCRIBE_TOPIC),
        needs="Delete Topic; by id Describe Topic as well",
    ),
    ApiKey.DELETE_RECORDS: _row(
        records.delete_records_guard, "29 each partition", guards.DELETE_TOPIC
    ),
    ApiKey.INIT_PRODUCER_ID: _row(
        transactions.init_producer_id_guard,
        "53; 31",
        *(guards.WRITE_ID, guards.IDEMPOTENT_WRITE, guards.WRITE_TOPIC),
        needs="Write TransactionalId; without one IdempotentWrite Cluster or Write on any Topic",
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _row(
        records.leader_epochs_guard,
        "29 each partition",
        *(guards.DESCRIBE_TOPIC, guards.CLUSTER_ACTION),
        needs="Describe Topic or ClusterAction Cluster",
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: _row(
        transactions.add_partitions_guard,
        "53 all; 29, 3, the rest 55; 31",
        *(guards.WRITE_ID, guards.WRITE_TOPIC, guards.CLUSTER_ACTION),
        needs="Write TransactionalId, Write Topic; since version 4 ClusterAction Cluster",
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: _row(
        transactions.add_offsets_guard, "53, 30", guards.WRITE_ID, guards.READ_GROUP
    ),
    ApiKey.END_TXN: _row(transactions.end_txn_guard, "53", guards.WRITE_ID),
    ApiKey.WRITE_TXN_MARKERS: _row(
        transactions.write_markers_guard,
        "31 each partition",
        *(guards.ALTER_CLUSTER, guards.CLUSTER_ACTION),
        needs="Alter Cluster or ClusterAction Cluster",
    ),
    ApiKey.TXN_OFFSET_COMMIT: _row(
        transactions.txn_offset_commit_guard,
        "53 all, 30 all, 29 each partition",
        *(guards.WRITE_ID, guards.READ_GROUP, guards.READ_TOPIC),
    ),
    ApiKey.DESCRIBE_ACLS: _row(administration.describe_acls_guard, "31", guards.DESCRIBE_CLUSTER),
    ApiKey.CREATE_ACLS: _row(
        administration.create_acls_guard, "31 each entry", guards.ALTER_CLUSTER
    ),
    ApiKey.DELETE_ACLS: _row(
        administration.delete_acls_guard, "31 each filter", guards.ALTER_CLUSTER
    ),
    ApiKey.DESCRIBE_CONFIGS: _row(
        administration.describe_configs_guard,
        "29, 30, 31 each resource",
        *_DESCRIBE_CONFIGS,
        needs="DescribeConfigs Topic, Group; of brokers and loggers DescribeConfigs Cluster",
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _row(
        administration.list_config_resources_guard, "31", guards.DESCRIBE_CLUSTER_CONFIGS
    ),
    ApiKey.ALTER_CONFIGS: _row(
        administration.alter_configs_guard,
        "29, 30, 31 each resource; loggers 42",
        *_ALTER_CONFIGS,
        needs="AlterConfigs Topic, Group; of brokers AlterConfigs Cluster",
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _row(
        administration.alter_log_dirs_guard, "31 each partition", guards.ALTER_CLUSTER
    ),
    ApiKey.DESCRIBE_LOG_DIRS: _row(
        administration.describe_log_dirs_guard,
        "31; before version 3 nothing",
        guards.DESCRIBE_CLUSTER,
    ),
    ApiKey.SASL_AUTHENTICATE: _row(open_to_all, "-"),
    ApiKey.CREATE_PARTITIONS: _row(
        administration.create_partitions_guard, "41 first; 29", guards.ALTER_TOPIC
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: _row(
        open_to_all,
        "64 first; 65",
        CREATE_TOKENS,
        needs="-; for another owner CreateTokens User",
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: _row(open_to_all, "64 first; 63", needs=_CONCERNED),
    ApiKey.EXPIRE_DELEGATION_TOKEN: _row(open_to_all, "64 first; 63", needs=_CONCERNED),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _row(
        open_to_all,
        "64 first; left out",
        *(DESCRIBE_TOKEN, DESCRIBE_TOKENS),
        needs="to be its owner, requester or renewer, or Describe DelegationToken, or "
        "DescribeTokens User of its owner",
    ),
    ApiKey.DELETE_GROUPS: _row(groups.delete_groups_guard, "30 each group", guards.DELETE_GROUP),
    ApiKey.ELECT_LEADERS: _row(
        administration.elect_leaders_guard, "31, and each partition", guards.ALTER_CLUSTER
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _row(
        administration.incremental_alter_configs_guard,
        "29, 30, 31 each resource",
        *_ALTER_CONFIGS,
        needs="AlterConfigs Topic, Group; of brokers and loggers AlterConfigs Cluster",
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _row(
        administration.reassign_guard, "31, and each partition", guards.ALTER_CLUSTER
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _row(
        administration.list_reassignments_guard, "31", guards.DESCRIBE_CLUSTER
    ),
    ApiKey.OFFSET_DELETE: _row(
        groups.offset_delete_guard,
        "30; 29 each partition",
        *(guards.DELETE_GROUP, guards.READ_TOPIC),
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _row(
        administration.describe_quotas_guard, "31", guards.DESCRIBE_CLUSTER_CONFIGS
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: _row(
        administration.alter_quotas_guard, "31 each entry", guards.ALTER_CLUSTER_CONFIGS
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _row(
        administration.describe_users_guard, "31", guards.DESCRIBE_CLUSTER
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _row(
        administration.alter_users_guard, "41 first; 31 each user", guards.ALTER_CLUSTER
    ),
    ApiKey.ALTER_PARTITION: _row(
        administration.alter_partition_guard, "31; elsewhere closed", guards.CLUSTER_ACTION
    ),
    ApiKey.UPDATE_FEATURES: _row(
        administration.update_features_guard, "31, before 41", guards.ALTER_CLUSTER
    ),
    ApiKey.DESCRIBE_CLUSTER: _row(
        administration.describe_cluster_guard,
        "its operations are told as 0",
        needs="-; to be told of its operations Describe Cluster",
    ),
    ApiKey.DESCRIBE_PRODUCERS: _row(
        records.describe_producers_guard, "17 first; 29 each partition", guards.READ_TOPIC
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: _row(
        transactions.describe_transactions_guard,
        "53 each id; topics left out",
        *(guards.DESCRIBE_ID, guards.DESCRIBE_TOPIC),
        needs="Describe TransactionalId; to see topics Describe Topic",
    ),
    ApiKey.LIST_TRANSACTIONS: _row(
        transactions.list_transactions_guard, "left out", guards.DESCRIBE_ID
    ),
    ApiKey.ALLOCATE_PRODUCER_IDS: _row(
        administration.allocate_producer_ids_guard, "31; elsewhere closed", guards.CLUSTER_ACTION
    ),
}
"""By API key, in order of the keys."""


def guarded(handlers: Mapping[int, Handler], context: GuardContext | None) -> Mapping[int, Handler]:
    """The handlers behind their guards; as they are where no authorizer is configured.

    Raises LookupError for a handler without a row.
    """
    missing = [str(key) for key in handlers if key not in MATRIX]
    if missing:
        raise LookupError(f"no row in the matrix of authorization: {', '.join(missing)}")
    if context is None:
        return handlers
    return {key: MATRIX[key].guard(serve, context) for key, serve in handlers.items()}


def table() -> str:
    """The matrix as a Markdown table."""
    lines = ["| API | needs | denied |", "|---|---|---|"]
    for key, row in MATRIX.items():
        lines.append(f"| {key:d} {guards.API_NAMES[key]} | {row.needs} | {row.denied} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())

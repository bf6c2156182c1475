"""Every call of kafka-python's KafkaAdminClient."""

from __future__ import annotations

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import (
    ACL,
    AbortTransactionSpec,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    MemberToRemove,
    OffsetSpec,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)
from kafka.structs import OffsetAndMetadata

from .admin_calls import Calls
from .waiting import eventually


def kafka_python_calls(admin: KafkaAdminClient, topic: str, group: str) -> Calls:
    """The calls of a topic and of a group; see admin_calls for what these hold."""
    return {
        **_cluster(admin, topic),
        **_topics(admin, topic),
        **_settings(admin, topic),
        **_groups(admin, topic, group),
        **_transactions(admin, topic),
        **_security(admin),
        **_moves(admin, topic),
        "delete_topics": lambda: admin.delete_topics([topic]),
    }


def _cluster(admin: KafkaAdminClient, topic: str) -> Calls:
    return {
        "api_versions": lambda: admin.api_versions() and None,
        "get_broker_version_data": lambda: admin.get_broker_version_data(1) and None,
        "describe_cluster": lambda: admin.describe_cluster(),
        "describe_features": lambda: admin.describe_features(),
        "update_features": lambda: admin.update_features({"metadata.version": 1}),
        "describe_metadata_quorum": lambda: admin.describe_metadata_quorum(),
        "describe_log_dirs": lambda: admin.describe_log_dirs([topic]),
        "alter_replica_log_dirs": lambda: admin.alter_replica_log_dirs({(topic, 0, 1): "/x"}),
        "elect_leaders": lambda: admin.elect_leaders(0, [topic]),
    }


def _moves(admin: KafkaAdminClient, topic: str) -> Calls:
    """The leader may be another one afterwards, of which other nodes hear a little later."""
    topic_partition = TopicPartition(topic, 0)
    return {
        "alter_partition_reassignments": lambda: admin.alter_partition_reassignments(
            {topic_partition: [1]}
        ),
        "list_partition_reassignments": lambda: eventually(
            lambda: topic_partition not in admin.list_partition_reassignments(),
            what="the move ends",
        ),
    }


def _topics(admin: KafkaAdminClient, topic: str) -> Calls:
    topic_partition = TopicPartition(topic, 0)
    more = {f"{topic}-more": {"num_partitions": 1, "replication_factor": 1}}
    return {
        "create_topics to validate": lambda: admin.create_topics(more, validate_only=True),
        "create_topics": lambda: admin.create_topics(more),
        "wait_for_topics": lambda: admin.wait_for_topics([f"{topic}-more"]),
        "delete_topics of two": lambda: admin.delete_topics([f"{topic}-more"]),
        "list_topics": lambda: admin.list_topics(),
        "describe_topics": lambda: admin.describe_topics([topic]),
        "describe_topic_partitions": lambda: admin.describe_topic_partitions([topic]),
        "create_partitions to validate": lambda: admin.create_partitions(
            {topic: 9}, validate_only=True
        ),
        "create_partitions": lambda: admin.create_partitions({topic: 4}),
        "delete_records": lambda: admin.delete_records({topic_partition: 1}),
        "list_partition_offsets": lambda: admin.list_partition_offsets(
            {topic_partition: OffsetSpec.MAX_TIMESTAMP}
        ),
    }


def _settings(admin: KafkaAdminClient, topic: str) -> Calls:
    def resource() -> ConfigResource:
        return ConfigResource("TOPIC", topic, configs={"retention.ms": "86400000"})

    return {
        "describe_configs": lambda: admin.describe_configs(
            [ConfigResource("TOPIC", topic)], include_synonyms=True
        ),
        "describe_configs of a node": lambda: admin.describe_configs(
            [ConfigResource("BROKER", "1")]
        ),
        "alter_configs": lambda: admin.alter_configs([resource()], incremental=True),
        "alter_configs as before": lambda: admin.alter_configs([resource()], incremental=False),
        "reset_configs": lambda: admin.reset_configs([resource()]),
        "list_config_resources": lambda: admin.list_config_resources(),
    }


def _groups(admin: KafkaAdminClient, topic: str, group: str) -> Calls:
    topic_partition = TopicPartition(topic, 0)
    nobody = MemberToRemove(group_instance_id="nobody")
    return {
        "list_groups": lambda: admin.list_groups(),
        "list_groups by state": lambda: admin.list_groups(states_filter=["Empty"]),
        "describe_groups": lambda: admin.describe_groups(
            [group], include_authorized_operations=True
        ),
        "list_group_offsets": lambda: admin.list_group_offsets([group]),
        "alter_group_offsets": lambda: admin.alter_group_offsets(
            group, {topic_partition: OffsetAndMetadata(1, "", -1)}
        ),
        "reset_group_offsets": lambda: admin.reset_group_offsets(
            group, {topic_partition: OffsetSpec.EARLIEST}
        ),
        "remove_group_members": lambda: admin.remove_group_members(group, [nobody]),
        "delete_group_offsets": lambda: admin.delete_group_offsets(group, [topic_partition]),
        "delete_groups": lambda: admin.delete_groups([group]),
    }


def _transactions(admin: KafkaAdminClient, topic: str) -> Calls:
    topic_partition = TopicPartition(topic, 0)
    spec = AbortTransactionSpec(topic_partition, 4711, 0)
    return {
        "describe_producers": lambda: admin.describe_producers([topic_partition]),
        "list_transactions": lambda: admin.list_transactions(),
        "describe_transactions": lambda: admin.describe_transactions(["nobody"]),
        "find_hanging_transactions": lambda: admin.find_hanging_transactions(),
        "abort_transaction": lambda: admin.abort_transaction(spec),
    }


def _security(admin: KafkaAdminClient) -> Calls:
    what = ResourcePattern(ResourceType.TOPIC, "x")
    read, allow = ACLOperation.READ, ACLPermissionType.ALLOW
    rule = ACL("User:x", "*", read, allow, what)
    like = ACLFilter("User:x", "*", read, allow, what)
    drop = UserScramCredentialDeletion("x", ScramMechanism.SCRAM_SHA_256)
    return {
        "create_acls": lambda: admin.create_acls([rule]),
        "describe_acls": lambda: admin.describe_acls(like),
        "delete_acls": lambda: admin.delete_acls([like]),
        "describe_user_scram_credentials": lambda: admin.describe_user_scram_credentials(),
        "alter_user_scram_credentials": lambda: admin.alter_user_scram_credentials([drop]),
    }

"""Every call of confluent-kafka's AdminClient, that is of librdkafka's."""

from __future__ import annotations

from typing import Any

import confluent_kafka.admin
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from .admin_calls import Calls

of: Any = confluent_kafka.admin
"""The kinds of arguments, which the module has and does not export."""
WAIT_S = 120.0


def confluent_calls(admin: AdminClient, topic: str, group: str) -> Calls:
    """The calls of a topic and of a group; see admin_calls for what these hold."""
    return {
        **_cluster(admin, topic),
        **_settings(admin, topic),
        **_groups(admin, topic, group),
        **_security(admin),
        "delete_topics": lambda: admin.delete_topics([topic]),
    }


def _cluster(admin: AdminClient, topic: str) -> Calls:
    topic_partition = TopicPartition(topic, 0)
    return {
        "cluster_id": lambda: admin.cluster_id(),
        "describe_cluster": lambda: admin.describe_cluster(include_authorized_operations=True),
        "list_topics": lambda: admin.list_topics(timeout=WAIT_S),
        "list_topics by name": lambda: admin.list_topics(topic, timeout=WAIT_S),
        "list_groups": lambda: admin.list_groups(timeout=WAIT_S),
        "create_topics to validate": lambda: admin.create_topics(
            [NewTopic(f"{topic}-more", 1, replication_factor=1)], validate_only=True
        ),
        "create_topics": lambda: admin.create_topics(
            [NewTopic(f"{topic}-more", 2, replica_assignment=[[1, 2], [2, 3]])]
        ),
        "delete_topics of two": lambda: admin.delete_topics([f"{topic}-more"]),
        "describe_topics": lambda: admin.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True
        ),
        "create_partitions to validate": lambda: admin.create_partitions(
            [NewPartitions(topic, 9)], validate_only=True
        ),
        "create_partitions": lambda: admin.create_partitions([NewPartitions(topic, 4)]),
        "elect_leaders": lambda: admin.elect_leaders(ElectionType.PREFERRED),
        "delete_records": lambda: admin.delete_records([TopicPartition(topic, 0, 1)]),
        "list_offsets": lambda: admin.list_offsets({topic_partition: of.OffsetSpec.latest()}),
        "list_offsets of the newest record": lambda: admin.list_offsets(
            {topic_partition: of.OffsetSpec.max_timestamp()},
            isolation_level=IsolationLevel.READ_COMMITTED,
        ),
        "list_offsets by time": lambda: admin.list_offsets(
            {topic_partition: of.OffsetSpec.for_timestamp(0)}
        ),
        "poll": lambda: admin.poll(0) and None,
    }


def _settings(admin: AdminClient, topic: str) -> Calls:
    kind = of.ConfigResource.Type.TOPIC
    entry = of.ConfigEntry(
        "retention.ms", "86400000", incremental_operation=of.AlterConfigOpType.SET
    )
    return {
        "describe_configs": lambda: admin.describe_configs([of.ConfigResource(kind, topic)]),
        "describe_configs of a node": lambda: admin.describe_configs(
            [of.ConfigResource(of.ConfigResource.Type.BROKER, "1")]
        ),
        "alter_configs": lambda: admin.alter_configs(
            [of.ConfigResource(kind, topic, set_config={"retention.ms": "86400000"})]
        ),
        "incremental_alter_configs": lambda: admin.incremental_alter_configs(
            [of.ConfigResource(kind, topic, incremental_configs=[entry])]
        ),
    }


def _groups(admin: AdminClient, topic: str, group: str) -> Calls:
    at = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
    return {
        "list_consumer_groups": lambda: admin.list_consumer_groups(),
        "describe_consumer_groups": lambda: admin.describe_consumer_groups(
            [group], include_authorized_operations=True
        ),
        "list_consumer_group_offsets": lambda: admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], require_stable=True
        ),
        "alter_consumer_group_offsets": lambda: admin.alter_consumer_group_offsets([at]),
        "delete_consumer_groups": lambda: admin.delete_consumer_groups([group]),
    }


def _security(admin: AdminClient) -> Calls:
    literal, read = of.ResourcePatternType.LITERAL, of.AclOperation.READ
    allow = of.AclPermissionType.ALLOW
    rule = of.AclBinding(of.ResourceType.TOPIC, "x", literal, "User:x", "*", read, allow)
    like = of.AclBindingFilter(of.ResourceType.TOPIC, "x", literal, "User:x", "*", read, allow)
    drop = of.UserScramCredentialDeletion("x", of.ScramMechanism.SCRAM_SHA_256)
    return {
        "create_acls": lambda: admin.create_acls([rule]),
        "describe_acls": lambda: admin.describe_acls(like),
        "delete_acls": lambda: admin.delete_acls([like]),
        "describe_user_scram_credentials": lambda: admin.describe_user_scram_credentials(),
        "alter_user_scram_credentials": lambda: admin.alter_user_scram_credentials([drop]),
    }

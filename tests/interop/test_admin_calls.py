"""Every call of five admin clients is answered: what we do not serve ends with a clear error.

A call that a table of refusals does not name must succeed; one that it names must end with that
error. A method that a new release of a client brings fails here until it is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from barnabas.client.admin.admin import Admin
from tests.harness.admin_calls import called, methods, outcomes
from tests.harness.aiokafka_calls import aiokafka_calls
from tests.harness.confluent_calls import confluent_calls
from tests.harness.confluent_client import WAIT_S, Confluent
from tests.harness.coordinators import coordinator
from tests.harness.deployments import Deployment, create_topic, is_apache_kafka
from tests.harness.go_clients import FRANZ, SARAMA
from tests.harness.kafka_python_calls import kafka_python_calls
from tests.harness.node_logs import quiet
from tests.harness.raw_calls import find_transaction_coordinator
from tests.harness.raw_connection import RawConnection
from tests.harness.records import Sent
from tests.harness.waiting import eventually

pytestmark = pytest.mark.skipif(is_apache_kafka(), reason="the refusals are ours")

Refusals = Mapping[str, str]
DISABLED = "SECURITY_DISABLED"
OF_CONFLUENT: Refusals = {
    "create_acls": DISABLED,  # describe_acls is told so, too, and shows an empty list
    "delete_acls": DISABLED,
    "alter_user_scram_credentials": "RESOURCE_NOT_FOUND",  # there is no such user
}
OLD_FOR_KAFKA_PYTHON = "IncompatibleBrokerVersion"
OF_KAFKA_PYTHON: Refusals = {
    "describe_metadata_quorum": OLD_FOR_KAFKA_PYTHON,  # of Kafka 3.9 with ZooKeeper too
    "describe_topic_partitions": OLD_FOR_KAFKA_PYTHON,  # of Kafka 3.9 with ZooKeeper too
    "alter_replica_log_dirs": OLD_FOR_KAFKA_PYTHON,
    "abort_transaction": "ClusterAuthorizationFailedError",  # none is open there
    "describe_transactions": "TransactionalIdNotFoundError",  # there is none of that name
    "remove_group_members": "UnknownMemberIdError",
    "create_acls": "SecurityDisabledError",
    "describe_acls": "SecurityDisabledError",
    "delete_acls": "SecurityDisabledError",
}
OF_AIOKAFKA: Refusals = {}
OLD_FOR_FRANZ = "broker is too old"
OF_FRANZ: Refusals = {
    "AlterBrokerReplicaLogDirs": OLD_FOR_FRANZ,
    "ElectLeaders": "ELECTION_NOT_NEEDED",
    "LeaveGroup": "UNKNOWN_MEMBER_ID",
    "DeleteGroups twice": "GROUP_ID_NOT_FOUND",
    "DescribeShareGroups": OLD_FOR_FRANZ,  # of Kafka 3.9 too
    "CreateACLs": DISABLED,
    "DescribeACLs": DISABLED,
    "DeleteACLs": DISABLED,
    "CreateDelegationToken": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",  # nobody has logged in
    "DescribeDelegationTokens": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "UpdateFeatures": "no features specified",  # which kadm says by itself
}
DISABLED_FOR_SARAMA = "Security features are disabled"
OF_SARAMA: Refusals = {
    "RemoveMemberFromConsumerGroup": "not known in the current generation",
    "CreateACL": DISABLED_FOR_SARAMA,
    "ListAcls": DISABLED_FOR_SARAMA,
    "DeleteACL": DISABLED_FOR_SARAMA,
}


@pytest.fixture
def filled(cluster: Deployment, topic: str, group: str) -> str:
    """A topic of three partitions with ten records each, and a group that read two of each."""
    library = Confluent()
    create_topic(cluster, library, topic, 3, 3)
    records = [Sent(b"x", partition=at % 3) for at in range(30)]
    library.produce(cluster.bootstrap, topic, records)
    places = [TopicPartition(topic, partition, 2) for partition in range(3)]
    coordinator(cluster.addresses, group)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    [done] = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, places)]
    ).values()
    done.result(WAIT_S)
    return topic


@pytest.fixture
def transaction_log(cluster: Deployment) -> None:
    """The log of transactions, loaded: who asks first has it made, and is told 15 or 14."""

    def is_led() -> bool:
        with RawConnection(cluster.addresses[0]) as link:
            return find_transaction_coordinator(link, "nobody").error == 0

    async def await_loaded() -> None:
        async with Admin.of(cluster.bootstrap) as admin:
            await admin.list_transactions()

    eventually(is_led, what="a leader of the transaction log")
    asyncio.run(await_loaded())


def check(found: Mapping[str, str], refusals: Refusals) -> None:
    wrong = {
        call: error
        for call, error in found.items()
        if (refusals[call] not in error if call in refusals else error)
    }
    assert not wrong
    assert refusals.keys() <= found.keys()


@pytest.fixture(autouse=True)
def no_complaint(cluster: Deployment) -> Iterator[None]:
    """No node has closed a connection, or failed: a client that tries again would hide that."""
    with quiet(cluster):
        yield


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_confluent_kafka(cluster: Deployment, filled: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    calls = confluent_calls(admin, filled, group)
    check(outcomes(calls), OF_CONFLUENT)
    assert methods(AdminClient, "set_sasl_credentials") == called(calls)


@pytest.mark.usefixtures("transaction_log")
def test_kafka_python(cluster: Deployment, filled: str, group: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        calls = kafka_python_calls(admin, filled, group)
        check(outcomes(calls), OF_KAFKA_PYTHON)
    finally:
        admin.close()
    assert methods(KafkaAdminClient, "close") == called(calls)


def test_aiokafka(cluster: Deployment, filled: str, group: str) -> None:
    async def start() -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        await admin.start()
        return admin

    with asyncio.Runner() as runner:
        admin = runner.run(start())
        try:
            calls = aiokafka_calls(runner, admin, filled, group)
            check(outcomes(calls), OF_AIOKAFKA)
        finally:
            runner.run(admin.close())
    assert methods(AIOKafkaAdminClient, "start", "close") == called(calls)


@pytest.mark.usefixtures("transaction_log")
def test_franz_go(cluster: Deployment, filled: str, group: str) -> None:
    check(FRANZ.calls(cluster.bootstrap, filled, group), OF_FRANZ)


def test_sarama(cluster: Deployment, filled: str, group: str) -> None:
    check(SARAMA.calls(cluster.bootstrap, filled, group), OF_SARAMA)

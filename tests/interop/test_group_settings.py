"""Settings of single groups: Kafka's tool, librdkafka's AdminClient and our own set and see them.

At night all of it is asked of Apache Kafka 4.1 as well, which must answer alike.
Source: docs/spec/consumer-groups.md §2.6 (C24).
"""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from barnabas.client import Admin, KafkaError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.harness.consumer_protocol_clusters import (
    HEARTBEAT_MS,
    SESSION_MS,
    STEADY_SESSION_MS,
    consumer_groups,
)
from tests.harness.deployments import Deployment, OwnCluster
from tests.harness.group_shell import GroupShell
from tests.harness.java_tools import NEWER, JavaTools
from tests.harness.kafka_tools import CONFIGS
from tests.harness.needs import maven_jars

__all__ = ["consumer_groups"]

SESSION: Final = "consumer.session.timeout.ms"
HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
SOON_S: Final = 90.0
_NUMBERS = count()


@pytest.fixture
def group() -> str:
    """A name that nobody had before."""
    return f"settled/{next(_NUMBERS)} ä"


@pytest.fixture
def shell(consumer_groups: Deployment, capsys: pytest.CaptureFixture[str]) -> GroupShell:
    return GroupShell(consumer_groups, capsys)


async def told(admin: Admin, group: str) -> dict[str, tuple[str | None, str]]:
    settings = (await admin.describe_group_settings([group]))[group]
    return {setting.name: (setting.value, setting.source) for setting in settings}


async def beat(admin: Admin, group: str, epoch: int) -> Any:
    """A heartbeat of the member "m", which subscribes to nothing that there is."""
    is_new = epoch == 0
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=300_000 if is_new else -1,
        subscribed_topic_names=["not.there"] if is_new else None,
        topic_partitions=[] if is_new else None,
    )
    return await admin.cluster.to_coordinator(group, request, lambda answer: (answer.error_code,))


async def until_told(admin: Admin, group: str, epoch: int, interval_ms: int) -> None:
    """Kafka's coordinator hears of a change a moment after it is answered."""
    async with asyncio.timeout(SOON_S):
        while (answer := await beat(admin, group, epoch)).heartbeat_interval_ms != interval_ms:
            # A session may have ended on a busy machine: the member joins again.
            epoch = 0 if answer.error_code else answer.member_epoch
            await asyncio.sleep(0.05)


async def test_members_hear_of_new_settings_with_their_next_heartbeat(
    consumer_groups: Deployment, group: str
) -> None:
    async with Admin.of(consumer_groups.bootstrap) as admin:
        first = await beat(admin, group, 0)
        assert (first.error_code, first.heartbeat_interval_ms) == (0, HEARTBEAT_MS)
        await admin.alter_group_settings(group, {HEARTBEAT: "7000", SESSION: "30000"})
        await until_told(admin, group, first.member_epoch, 7000)
        found = await told(admin, group)
        assert found[HEARTBEAT] == ("7000", "DYNAMIC_GROUP_CONFIG")
        assert found[SESSION] == ("30000", "DYNAMIC_GROUP_CONFIG")
        await admin.alter_group_settings(group, {}, [HEARTBEAT])
        await until_told(admin, group, first.member_epoch, HEARTBEAT_MS)
        assert (await told(admin, group))[HEARTBEAT][0] == str(HEARTBEAT_MS)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({SESSION: str(SESSION_MS - 1)}, ErrorCode.INVALID_CONFIG),
        ({SESSION: "60001"}, ErrorCode.INVALID_CONFIG),
        ({HEARTBEAT: "15001"}, ErrorCode.INVALID_CONFIG),
        ({HEARTBEAT: "soon"}, ErrorCode.INVALID_CONFIG),
        ({HEARTBEAT: str(STEADY_SESSION_MS)}, ErrorCode.INVALID_CONFIG),
        ({"session.timeout.ms": "30000"}, ErrorCode.INVALID_CONFIG),
    ],
)
async def test_what_a_group_cannot_be_given_is_refused(
    consumer_groups: Deployment, group: str, settings: dict[str, str], code: ErrorCode
) -> None:
    async with Admin.of(consumer_groups.bootstrap) as admin:
        with pytest.raises(KafkaError) as refused:
            await admin.alter_group_settings(group, settings)
        assert refused.value.code is code
        assert all(
            source != "DYNAMIC_GROUP_CONFIG" for _, source in (await told(admin, group)).values()
        )


async def test_groups_without_a_name_have_no_settings(consumer_groups: Deployment) -> None:
    async with Admin.of(consumer_groups.bootstrap) as admin:
        with pytest.raises(KafkaError) as refused:
            await admin.alter_group_settings("", {SESSION: "30000"})
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        with pytest.raises(KafkaError) as unseen:
            await admin.describe_group_settings([""])
        assert unseen.value.code is ErrorCode.INVALID_REQUEST


def test_librdkafkas_administrator_sets_sees_and_takes_back(
    consumer_groups: Deployment, group: str
) -> None:
    admin = AdminClient({"bootstrap.servers": consumer_groups.bootstrap})

    def alter(value: str | None) -> None:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(SESSION, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(SOON_S)

    def shown() -> Any:
        (found,) = admin.describe_configs([ConfigResource(ResourceType.GROUP, group)]).values()
        return found.result(SOON_S)[SESSION]

    alter("30000")
    assert (shown().value, shown().source) == ("30000", 8)
    with pytest.raises(KafkaException) as refused:
        alter("1")
    assert refused.value.args[0].code() == ErrorCode.INVALID_CONFIG
    alter(None)
    inherited = (str(STEADY_SESSION_MS), False)
    assert (shown().value, shown().is_default) == inherited or shown().source != 8


def test_commands_show_and_change_the_settings_of_a_group(shell: GroupShell, group: str) -> None:
    assert shell("alter", group, "--config", f"{SESSION}=30000") == f"altered group {group}\n"
    (row,) = shell.json("settings", group)
    assert row["name"] == group
    by_name = {setting["name"]: setting for setting in row["settings"]}
    assert by_name[SESSION]["value"] == "30000"
    assert f" {SESSION} " in shell("settings", group)
    assert shell.json("alter", group, "--delete-config", HEARTBEAT) == {
        "name": group, "altered": False,
    }  # fmt: skip
    assert "has no value of its own" in shell.told
    shell("alter", group, "--delete-config", SESSION, "--delete-config", SESSION)
    shell("alter", group, "--config", f"{SESSION}=1", code=1)
    assert SESSION in shell.told
    shell("alter", group, "--delete-config", "consumer.session.timeout", code=1)
    assert f"did you mean {SESSION}?" in shell.told
    shell("alter", group, code=2)
    shell("alter", group, "--config", f"{SESSION}=30000", "--delete-config", SESSION, code=2)


@pytest.mark.kafka
@pytest.mark.nightly
def test_kafkas_tool_sets_sees_and_takes_back(
    consumer_groups: Deployment, tmp_path: Path, group: str
) -> None:
    logging = tmp_path / "log4j.properties"
    logging.write_text("log4j.rootLogger=OFF\n")
    tools = JavaTools(NEWER, maven_jars("kafka_2.13", NEWER), logging)
    name = group.replace(" ", "-").replace("/", ".")  # the tool's own words end at a space
    of = ("--entity-type", "groups", "--entity-name", name)
    at = ("--bootstrap-server", consumer_groups.bootstrap)
    tools.run(CONFIGS, *at, "--alter", *of, "--add-config", f"{SESSION}=30000,{HEARTBEAT}=7000")
    shown = tools.run(CONFIGS, *at, "--describe", *of)
    assert f"Dynamic configs for group {name} are:" in shown
    assert (
        f"{SESSION}=30000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{SESSION}=30000" in shown
    )
    assert f"{HEARTBEAT}=7000" in shown
    everything = tools.run(CONFIGS, *at, "--describe", "--all", *of)
    assert f"{HEARTBEAT}=7000" in everything
    with pytest.raises(AssertionError, match="InvalidConfigurationException"):
        tools.run(CONFIGS, *at, "--alter", *of, "--add-config", f"{SESSION}=1")
    tools.run(CONFIGS, *at, "--alter", *of, "--delete-config", HEARTBEAT)
    shown = tools.run(CONFIGS, *at, "--describe", *of)
    assert HEARTBEAT not in shown
    assert SESSION in shown


@pytest.mark.nightly
async def test_every_node_holds_what_one_was_told_and_a_restart_loses_nothing(group: str) -> None:
    settings = {"offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": "3"}
    cluster = OwnCluster(3, settings)
    names = [f"{group}-{number}" for number in range(6)]
    try:
        async with Admin.of(cluster.bootstrap) as admin:
            epochs = {name: (await beat(admin, name, 0)).member_epoch for name in names}
            for name in names:  # each through the controller, coordinated anywhere
                await admin.alter_group_settings(name, {HEARTBEAT: "9000"})
            for name in names:
                await until_told(admin, name, epochs[name], 9000)
        cluster.kill_all()
        cluster.start_all()
        async with Admin.of(cluster.bootstrap) as admin:
            for name in names:
                assert (await told(admin, name))[HEARTBEAT] == ("9000", "DYNAMIC_GROUP_CONFIG")
                assert (await beat(admin, name, 0)).heartbeat_interval_ms == 9000
    finally:
        cluster.stop()

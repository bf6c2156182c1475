"""Nodes that own their znodes: at work, after kill -9, and switched on and off under load.

Source: docs/spec/security.md §5 (S67, S68, S70).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from kazoo.exceptions import NoAuthError

from barnabas.client.classic.classic_config import ClassicConfig
from barnabas.client.classic.consumer_connector import ConsumerConnector
from barnabas.client.errors import KafkaError
from barnabas.console.__main__ import main
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import free_ports
from barnabas.console.development.zookeeper_security import ZooKeeperSecurity
from barnabas.protocol.errors import ErrorCode
from benchmarks.barnabas_node import barnabas_node
from benchmarks.server_process import ServerProcess
from tests.harness import znodes
from tests.harness.confluent_client import Confluent
from tests.harness.deployments import await_complete, await_leaders_at
from tests.harness.own_client import Own
from tests.harness.raw_connection import addresses_of
from tests.harness.records import numbered
from tests.harness.secured_zookeeper import jaas_file, login_settings
from tests.harness.steady_load import SteadyLoad
from tests.harness.steady_settings import STEADY
from tests.harness.traffic import PatientCommitter
from tests.harness.waiting import eventually

START_S: Final = 240.0
EXIT_S: Final = 240.0
RECORDS: Final = 100
CHROOT: Final = "/cluster"
SECRET: Final = {"cluster.secret": "a secret of these tests"}
OWNED: Final = {**login_settings(), "zookeeper.set.acl": "true"}
TICK_MS: Final = 2_000
LONG_SESSION: Final = {"zookeeper.session.timeout.ms": "40000"}
"""Twenty ticks: what a killed node registered is there still when it is back, however slowly."""


class Nodes:
    """Nodes on ports that stay, with settings that change from start to start."""

    def __init__(self, directory: Path, zookeeper: str, count: int) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self._ports = free_ports(count)
        self.running: dict[int, ServerProcess] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def start(self, number: int, settings: Mapping[str, str]) -> None:
        """Start one; returns when it listens."""
        node = self.node(number, settings)
        node.launch()
        self.running[number] = node
        node.wait_until_listening(START_S)

    def node(self, number: int, settings: Mapping[str, str]) -> ServerProcess:
        copies = str(len(self._ports))
        return barnabas_node(
            self.directory / str(number),
            self.zookeeper,
            node_id=number,
            settings={
                **STEADY,
                **SECRET,
                "port": str(self._ports[number - 1]),
                "default.replication.factor": copies,
                "offsets.topic.replication.factor": copies,
                **settings,
            },
        )

    def restart(self, number: int, settings: Mapping[str, str]) -> None:
        """In order; the others go on."""
        self.running.pop(number).stop()
        self.start(number, settings)

    def await_complete(self) -> None:
        """Return when every node knows all: a controller hears of who is registered a bit later."""
        count = len(self._ports)
        eventually(
            lambda: len(znodes.registered_brokers(self.zookeeper)) == count, within_s=START_S
        )
        await_complete(addresses_of(self.bootstrap))

    def stop(self) -> None:
        for node in self.running.values():
            node.stop()


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    security = ZooKeeperSecurity(jaas=jaas_file(tmp_path_factory.mktemp("jaas")))
    with EmbeddedZooKeeper(tick_ms=TICK_MS, security=security) as server:
        yield server


@pytest.fixture(scope="module")
def owned(
    zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("owned"), zookeeper.hosts + CHROOT, 2)
    try:
        for number in (1, 2):
            nodes.start(number, {**OWNED, **LONG_SESSION})
        nodes.await_complete()
        yield nodes
    finally:
        nodes.stop()


def test_a_stranger_reads_the_cluster_and_changes_nothing_of_it(owned: Nodes, topic: str) -> None:
    """Nor does he see passwords; and he may not make himself controller."""
    Own().create_topic(owned.bootstrap, topic, 1, 2)
    with znodes.session(owned.zookeeper) as stranger:
        assert topic in stranger.get_children("/brokers/topics")
        controller, _ = stranger.get("/controller")
        for path in ("/brokers/ids/1", "/controller", "/controller_epoch", "/cluster/id"):
            with pytest.raises(NoAuthError):
                stranger.set(path, b"mine")
            with pytest.raises(NoAuthError):
                stranger.delete(path)
        for path in ("/config/users", "/config/brokers"):
            with pytest.raises(NoAuthError):
                stranger.get_children(path)
        with pytest.raises(NoAuthError):
            stranger.create("/config/changes/config_change_", b"x", sequence=True)
        assert stranger.get("/controller")[0] == controller


def test_records_and_offsets_survive_kill_9_and_the_registration_does_not_wait_for_its_session(
    owned: Nodes, topic: str, group: str
) -> None:
    """docs/decisions/0004 deletes what a dead session left behind: that needs its identity."""
    library = Confluent()
    library.create_topic(owned.bootstrap, topic, 2, 2)
    library.produce(owned.bootstrap, topic, numbered(0, RECORDS))
    member = library.join(owned.bootstrap, group, topic)
    eventually(lambda: len(member.poll()) > 0, within_s=START_S)
    member.commit()
    member.close()
    before = library.committed(owned.bootstrap, group)
    killed = owned.running.pop(1)
    killed.kill()
    owned.start(1, {**OWNED, **LONG_SESSION})
    log = owned.directory / "1" / "node.log"
    eventually(
        lambda: "removed a registration of a former life" in log.read_text(), within_s=START_S
    )
    eventually(
        lambda: library.committed(owned.bootstrap, group) == before,
        within_s=START_S,
        what="the same offsets",
    )
    owned.await_complete()
    await_leaders_at(addresses_of(owned.bootstrap), topic, 2)
    library.produce(owned.bootstrap, topic, numbered(RECORDS, RECORDS))


async def test_a_classic_consumer_that_is_nobody_to_zookeeper_reads_and_commits_there(
    owned: Nodes, topic: str, group: str
) -> None:
    """/consumers is everybody's, what nodes create below it as well."""
    library = Confluent()
    await asyncio.to_thread(library.create_topic, owned.bootstrap, topic, 1, 2)
    await asyncio.to_thread(library.produce, owned.bootstrap, topic, numbered(0, 10))
    config = ClassicConfig(
        zookeeper_connect=owned.zookeeper,
        zookeeper_session_timeout_ms=10_000,
        group_id=group,
        auto_offset_reset="smallest",
        zookeeper_connection_timeout_ms=60_000,
        rebalance_backoff_ms=1_000,
        rebalance_max_retries=60,
        offsets_storage="zookeeper",
    )
    async with ConsumerConnector(config) as connector:
        [stream] = (await connector.create_message_streams({topic: 1}))[topic]
        found = [await anext(stream) for _ in range(10)]
        await connector.commit_offsets()
    assert len(found) == 10
    stored = znodes.data(owned.zookeeper, f"/consumers/{group}/offsets/{topic}/0")
    assert stored == b"10"


def test_a_node_that_is_somebody_else_to_zookeeper_ends_and_says_why(
    owned: Nodes, tmp_path: Path
) -> None:
    node = barnabas_node(tmp_path, owned.zookeeper, node_id=9, settings=SECRET)
    node.launch()
    assert node.wait_or_kill(EXIT_S) == 1, node.last_words()
    assert "All nodes need one identity" in node.last_words()
    assert "9" not in znodes.registered_brokers(owned.zookeeper)


def znode_command(nodes: Nodes, config: Path, command: str) -> None:
    """``barnabas zookeeper secure|open``, done."""
    config.touch(mode=0o600)
    config.write_text(
        "".join(f"{name}={text}\n" for name, text in login_settings().items())
        + f"zookeeper.connect={nodes.zookeeper}\n"
    )
    words = ["zookeeper", command, "--execute", "--command-config", str(config)]
    assert main([*words, "--timeout-ms", "120000"]) == 0


def test_nodes_whose_znodes_another_identity_took_say_so_and_go_on_serving_what_they_lead(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, topic: str
) -> None:
    """NoAuth ends the controller's office and changes of ISRs, loudly; it is no missing znode."""
    nodes = Nodes(tmp_path, zookeeper.hosts + "/taken", 2)
    try:
        for number in (1, 2):
            nodes.start(number, {})
        nodes.await_complete()
        Own().create_topic(nodes.bootstrap, topic, 1, 2)
        load = SteadyLoad(nodes.bootstrap, topic)
        load.start()
        load.reach(RECORDS)
        znode_command(nodes, tmp_path / "tool.properties", "secure")
        with pytest.raises(KafkaError) as refused:
            Own().create_topic(nodes.bootstrap, f"{topic}-2", 1, 2)
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        eventually(
            lambda: any("gave up being controller" in _log(nodes, number) for number in (1, 2)),
            within_s=START_S,
            what="the end of the office",
        )
        load.reach(RECORDS)
        sent = load.end()
        found = Own().read(nodes.bootstrap, topic, {0: 0})
        assert [record.value for record in found] == sent
        eventually(
            lambda: "All nodes need one identity" in _log(nodes, 1) + _log(nodes, 2),
            within_s=START_S,
            what="the reason",
        )
        znode_command(nodes, tmp_path / "tool.properties", "open")
        eventually(
            lambda: _creates(nodes, f"{topic}-3"), within_s=START_S, what="a controller again"
        )
    finally:
        nodes.stop()


def _log(nodes: Nodes, number: int) -> str:
    return (nodes.directory / str(number) / "node.log").read_text()


def _creates(nodes: Nodes, topic: str) -> bool:
    try:
        Own().create_topic(nodes.bootstrap, topic, 1, 2)
    except KafkaError as error:
        return error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    return True


@pytest.mark.nightly
def test_ownership_is_switched_on_and_off_under_load_and_nothing_acknowledged_is_lost(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, topic: str, group: str
) -> None:
    """Credential on all nodes, then set.acl on all, then the command; back in reverse."""
    nodes = Nodes(tmp_path, zookeeper.hosts + "/switched", 3)
    try:
        for number in (1, 2, 3):
            nodes.start(number, {})
        nodes.await_complete()
        Own().create_topic(nodes.bootstrap, topic, 1, 3)
        load = SteadyLoad(nodes.bootstrap, topic)
        load.start()
        with PatientCommitter(nodes.bootstrap, topic, group) as committer:
            for settings in (login_settings(), OWNED):
                for number in (1, 2, 3):
                    nodes.restart(number, settings)
                    load.reach(RECORDS)
            znode_command(nodes, tmp_path / "tool.properties", "secure")
            load.reach(RECORDS)
            with znodes.session(nodes.zookeeper) as stranger, pytest.raises(NoAuthError):
                stranger.delete("/controller")
            for number in (1, 2, 3):  # what is secured is taken over by its successors
                nodes.restart(number, OWNED)
                load.reach(RECORDS)
            znode_command(nodes, tmp_path / "tool.properties", "open")
            load.reach(RECORDS)
            for settings in (login_settings(), {}):
                for number in (1, 2, 3):
                    nodes.restart(number, settings)
                    load.reach(RECORDS)
                if settings:  # what was created in between
                    znode_command(nodes, tmp_path / "tool.properties", "open")
            eventually(lambda: committer.acknowledged > 0, within_s=START_S)
        sent = load.end()
        found = Own().read(nodes.bootstrap, topic, {0: 0})
        assert [record.value for record in found] == sent
        committed = Own().committed(nodes.bootstrap, group)[0]
        assert committer.acknowledged <= committed <= committer.sent
    finally:
        nodes.stop()

"""``barnabas nodes`` and ``coordinators``: a node is emptied while clients work, and filled again.

BARNABAS_INTEROP_SERVER=kafka runs all of it against Apache Kafka 3.9 as well, whose nodes tell no
status. Source: docs/spec/console.md §2.3 and §7.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from confluent_kafka import Producer

from barnabas.console.development.cluster import Cluster
from tests.harness.command import Command
from tests.harness.deployments import KafkaCluster, await_leaders_at, is_apache_kafka
from tests.harness.kafka_python_client import KafkaPython
from tests.harness.raw_connection import addresses_of
from tests.harness.steady_settings import STEADY
from tests.harness.traffic import Activity, IdempotentProducer
from tests.harness.waiting import eventually

NODES = (1, 2, 3)
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
FEW = {
    **STEADY,
    "offsets.topic.num.partitions": "6",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
}


class Nodes(Protocol):
    """Three nodes, whoever made them."""

    @property
    def bootstrap(self) -> str: ...

    def stop(self) -> None: ...


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    running: Nodes = (
        KafkaCluster(3, FEW)
        if is_apache_kafka()
        else Cluster(3, settings=FEW, with_metrics=True).start()
    )
    yield running
    running.stop()


@pytest.fixture
def shell(
    nodes: Any,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Command:
    """The command, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    return Command(nodes, capsysbinary, monkeypatch, tmp_path)


@pytest.fixture
def orders(shell: Command, nodes: Nodes, topic: str) -> str:
    """Six partitions with a copy on each node, and a group that has committed."""
    shell("topics", "create", topic, "--partitions", "6", "--replication-factor", "3")
    await_leaders_at(addresses_of(nodes.bootstrap), topic, 6)
    eventually(lambda: not shell.json("partitions", "list", topic, "--under-replicated"))
    shell("produce", topic, "one", "two")
    shell("consume", topic, "--group", f"{topic}-readers", "--count", "2")
    return topic


@pytest.fixture
def filled_up(shell: Command, orders: str) -> str:
    """The same, with every node leading its share."""
    for node in NODES:
        shell("nodes", "fill", str(node), "--execute")
    assert {one["leads"] for one in shell.json("nodes", "list")} != {0}
    return orders


class CommittingMember(Activity):
    """A member of a group that commits after each poll; any exception fails the test."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__()
        self.is_ready = threading.Event()
        self.commits = 0
        self._member = KafkaPython().join(bootstrap, group, topic)

    def repeat(self) -> None:
        try:
            while not self.is_over.is_set():
                self._member.poll()
                if self._member.assigned():
                    self._member.commit()
                    self.commits += 1
                    self.is_ready.set()
        finally:
            self._member.close()


# -- nodes -----------------------------------------------------------------------------------


def test_nodes_are_listed_with_what_they_lead_and_copy(shell: Command, orders: str) -> None:
    every = shell.json("nodes", "list")
    assert [one["node"] for one in every] == [1, 2, 3]
    assert sum(one["is_controller"] for one in every) == 1
    assert all(one["is_up"] and one["copies"] >= 6 and not one["out_of_sync"] for one in every)
    assert sum(one["group_partitions"] for one in every) == 6
    assert all(one["bytes"] > 0 for one in every)
    assert all(one["is_told"] is not is_apache_kafka() for one in every)
    if not is_apache_kafka():
        assert all(one["holds_lease"] for one in every)
        assert all(one["roles"] == ["broker", "coordinator"] for one in every)
    head, *rows = shell("nodes", "list", "2").decode().splitlines()
    assert head.split()[:4] == ["NODE", "ADDRESS", "RACK", "LEADS"]
    assert [row.split()[0] for row in rows] == ["2"]


def test_a_node_is_drained_and_filled_while_clients_work(
    shell: Command, nodes: Nodes, filled_up: str, group: str
) -> None:
    before = {
        (one["topic"], one["partition"]): (one["leader"], one["replicas"])
        for one in shell.json("partitions", "list")
    }
    assert any(leader == 2 for leader, _ in before.values())
    with (
        IdempotentProducer(nodes.bootstrap, filled_up, 6) as producer,
        CommittingMember(nodes.bootstrap, group, filled_up) as member,
    ):
        assert member.is_ready.wait(240)
        dry = shell.json("nodes", "drain", "2")
        assert not dry["executed"]
        assert shell.json("partitions", "list", "--node", "2", "--led") != []
        done = shell.json("nodes", "drain", "2", "--execute", "--undo-file", "before.json")
        assert "node 2 leads nothing now" in shell.told
        assert done["refused"] == []
        topics = [one["topic"] for one in done["partitions"]]
        assert topics[-1] == OFFSETS
        assert topics == sorted(topics, key=lambda name: name == OFFSETS)
        assert shell.json("partitions", "list", "--node", "2", "--led") == []
        others = [one["leads"] for one in shell.json("nodes", "list") if one["node"] != 2]
        assert max(others) - min(others) <= 3
        commits, sent = member.commits, len(producer.acknowledged)
        eventually(lambda: member.commits > commits and len(producer.acknowledged) > sent)
        shell("nodes", "fill", "2", "--from-file", "before.json", "--execute")
        commits, sent = member.commits, len(producer.acknowledged)
        eventually(lambda: member.commits > commits and len(producer.acknowledged) > sent)
    assert producer.refused == []
    after = {
        (one["topic"], one["partition"]): (one["leader"], one["replicas"])
        for one in shell.json("partitions", "list")
    }
    of_node = {place for place, (leader, replicas) in before.items() if 2 in (leader, replicas[0])}
    assert {place: after[place] for place in of_node} == {place: before[place] for place in of_node}


@pytest.mark.skipif(is_apache_kafka(), reason="its nodes are not stopped one by one here")
def test_a_drained_node_is_stopped_and_started_and_nobody_notices(
    shell: Command, nodes: Nodes, filled_up: str, group: str
) -> None:
    assert isinstance(nodes, Cluster)
    node = nodes.node(2)
    with (
        IdempotentProducer(nodes.bootstrap, filled_up, 6) as producer,
        CommittingMember(nodes.bootstrap, group, filled_up) as member,
    ):
        assert member.is_ready.wait(240)
        shell("nodes", "drain", "2", "--execute", "--undo-file", "before.json")
        node.ask_to_stop()
        node.wait_stopped()
        commits, sent = member.commits, len(producer.acknowledged)
        eventually(lambda: member.commits > commits and len(producer.acknowledged) > sent)
        eventually(lambda: not shell.json("nodes", "list", "2")[0]["is_up"])
        assert shell.json("nodes", "list", "2")[0]["leads"] == 0
        node.spawn()
        node.let_serve()
        node.wait_ready()
        eventually(lambda: not shell.json("partitions", "list", "--under-replicated"))
        assert shell.json("partitions", "list", "--node", "2", "--led") == []
        shell("nodes", "fill", "2", "--from-file", "before.json", "--execute")
        assert shell.json("partitions", "list", "--node", "2", "--led") != []
        commits, sent = member.commits, len(producer.acknowledged)
        eventually(lambda: member.commits > commits and len(producer.acknowledged) > sent)
    assert producer.refused == []


def test_a_drained_node_says_that_there_is_nothing_left_to_do(
    shell: Command, filled_up: str
) -> None:
    shell("nodes", "drain", "3", "--execute")
    shell("nodes", "drain", "3", "--execute")
    assert "nothing to change: it is so already" in shell.told
    shell("nodes", "fill", "3", "--execute")
    assert next(one for one in shell.json("nodes", "list", "3"))["leads"] > 0


def test_a_single_copy_is_refused_and_moved_with_its_replicas(
    shell: Command, nodes: Nodes, orders: str
) -> None:
    alone = f"{orders}-alone"
    shell("topics", "create", alone, "--partitions", "1", "--replication-factor", "1")
    await_leaders_at(addresses_of(nodes.bootstrap), alone, 1)
    shell("partitions", "move", alone, "--replicas", "1", "--execute")
    shell("produce", alone, "three")
    shell("nodes", "drain", "1", "--execute", code=1)
    assert f"{alone}-0: node 1 has its only copy: --replicas moves it" in shell.told
    assert [one["topic"] for one in shell.json("partitions", "list", "--node", "1", "--led")] == [
        alone
    ]
    moved = shell.json("nodes", "drain", "1", "--replicas", "--execute", code=1)
    assert {one["error"] for one in moved["refused"]} == {
        "no other node could have the copy of node 1"
    }
    (found,) = shell.json("partitions", "list", alone)
    assert found["leader"] in (2, 3)
    assert shell("consume", alone, "--exit") == b"three\n"
    shell("nodes", "fill", "1", "--execute")
    shell("topics", "delete", alone)


def test_a_node_without_copies_is_given_its_share(
    shell: Command, nodes: Nodes, orders: str
) -> None:
    for number in range(3):
        name = f"{orders}-{number}"
        shell("topics", "create", name, "--partitions", "6", "--replication-factor", "1")
        await_leaders_at(addresses_of(nodes.bootstrap), name, 6)
        shell("partitions", "move", name, "--replicas", "1", "--execute")
    dry = shell.json("nodes", "fill", "3", "--replicas")
    assert dry["partitions"] != []
    shell("nodes", "fill", "3", "--replicas", "--throttle", "100000000", "--execute")
    assert "lets it lead its share" in shell.told
    copies = {one["node"]: one["copies"] for one in shell.json("nodes", "list")}
    assert copies[3] > copies[2]
    for number in range(3):
        shell("topics", "delete", f"{orders}-{number}")


def test_what_contradicts_itself_is_wrong_usage(shell: Command, orders: str) -> None:
    shell("nodes", "drain", "2", "--throttle", "5", code=2)
    shell("nodes", "drain", "9", "--execute", code=1)
    assert "no node 9 is up: there are 1,2,3" in shell.told
    shell("nodes", "fill", "2", "--from-file", "missing.json", code=1)
    shell("coordinators", "move", "--to", "2", code=2)


# -- coordinators ----------------------------------------------------------------------------


def test_coordinators_are_listed_with_who_stands_by(
    shell: Command, filled_up: str
) -> None:  # fmt: skip
    group = f"{filled_up}-readers"
    eventually(lambda: is_kept(shell, group), what="who coordinates since the fill has loaded it")
    parts = shell.json("coordinators", "list", "--groups")
    assert [(one["topic"], one["partition"]) for one in parts] == [
        (OFFSETS, number) for number in range(6)
    ]
    assert sum(one["kept"] for one in parts) >= 1
    (kept,) = shell.json("coordinators", "list", "--group", group)
    assert kept["kept"] >= 1
    assert {kept["coordinator"], *(one["node"] for one in kept["standbys"])} == {1, 2, 3}
    assert all(one["in_sync"] for one in kept["standbys"])
    if is_apache_kafka():
        assert kept["standing"] is None
        shell("coordinators", "list", "--groups")
        assert "told by Barnabas' nodes with metrics.listener only" in shell.told
    else:
        assert kept["standing"] == "owned"
        told = eventually(
            lambda: [
                one["behind"]
                for one in shell.json("coordinators", "list", "--group", group)[0]["standbys"]
            ]
        )
        assert all(isinstance(behind, int) for behind in told)
    shown = shell("coordinators", "list", "--groups").decode()
    assert "COORDINATOR  PARTITIONS  KEPT" in shown


def is_kept(shell: Command, group: str) -> bool:
    """Its coordinator knows it; Apache Kafka's nodes do not tell how they stand to a partition."""
    (kept,) = shell.json("coordinators", "list", "--group", group)
    stands = kept["standing"] is None or kept["standing"] == "owned"
    return stands and bool(kept["kept"]) and all(one["in_sync"] for one in kept["standbys"])


def test_a_group_is_coordinated_elsewhere_and_keeps_its_offsets(
    shell: Command, nodes: Any, filled_up: str
) -> None:
    group = f"{filled_up}-readers"
    (before,) = shell.json("coordinators", "list", "--group", group)
    target = before["standbys"][0]["node"]
    offsets = shell("groups", "export", group)
    shell("coordinators", "move", "--group", group, "--to", str(target))
    assert f"{group} is kept in {OFFSETS}-{before['partition']}" in shell.told
    assert "dry run" in shell.told
    done = shell.json("coordinators", "move", "--group", group, "--to", str(target), "--execute")
    assert [one["done"] for one in done["partitions"]] == [True]
    (after,) = shell.json("coordinators", "list", "--group", group)
    assert after["coordinator"] == target
    assert shell("groups", "export", group) == offsets
    shell("partitions", "elect", "--from-file", done["undo_file"], "--execute")
    (back,) = shell.json("coordinators", "list", "--group", group)
    assert back["coordinator"] == before["coordinator"]
    shell("coordinators", "move", "--partition", "77", "--to", "1", code=1)
    assert f"there is no {OFFSETS}-77" in shell.told


def test_transactions_are_listed_and_moved(shell: Command, nodes: Nodes, filled_up: str) -> None:
    name = f"copier-{uuid.uuid4().hex[:8]}"
    begin_transactions(nodes.bootstrap, name)
    (kept,) = shell.json("coordinators", "list", "--transactional-id", name)
    assert kept["topic"] == TRANSACTIONS
    assert kept["kept"] >= 1
    target = kept["standbys"][0]["node"]
    shell("coordinators", "move", "--transactional-id", name, "--to", str(target), "--execute")
    (after,) = shell.json("coordinators", "list", "--transactional-id", name)
    assert after["coordinator"] == target


def begin_transactions(bootstrap: str, name: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(240)

"""``barnabas partitions`` moves copies and elects leaders (docs/spec/console.md §7).

BARNABAS_INTEROP_SERVER=kafka runs all of it against Apache Kafka 3.9 as well.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.partition_admin import alter_reassignments
from barnabas.client.cluster import TopicPartition
from barnabas.console.partitions.throttle import RATES, throttled_nodes
from tests.harness.command import Command, command
from tests.harness.deployments import Deployment, OwnCluster, await_leaders, is_apache_kafka
from tests.harness.fixtures import Deploy
from tests.harness.kafka_python_client import KafkaPython
from tests.harness.own_client import Own
from tests.harness.records import Sent
from tests.harness.waiting import eventually

__all__ = ["command"]

NODES = (1, 2, 3)


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def orders(command: Command, cluster: Deployment, topic: str) -> str:
    """Two partitions whose copies are on nodes 1 and 2, with records."""
    return made(command, cluster, topic, "1,2")


def made(command: Command, cluster: Deployment, topic: str, replicas: str) -> str:
    factor = len(replicas.split(","))
    command("topics", "create", topic, "--partitions", "2", "--replication-factor", str(factor))
    await_leaders(cluster, topic, 2)
    move = ("--replicas", replicas, "--execute", "--undo-file", f"made-{topic}.json")
    command("partitions", "move", topic, *move)
    command("partitions", "elect", topic, "--preferred", "--execute")
    Own().produce(
        cluster.bootstrap,
        topic,
        [Sent(b"x" * 1000, partition=number % 2) for number in range(200)],
    )
    return topic


def replicas_of(command: Command, topic: str) -> list[list[int]]:
    return [one["replicas"] for one in command.json("partitions", "list", topic)]


def leaders_of(command: Command, topic: str) -> list[int | None]:
    return [one["leader"] for one in command.json("partitions", "list", topic)]


def reorder(bootstrap: str, wishes: Mapping[TopicPartition, list[int]]) -> None:
    """Another order of the replicas, and nobody elected: the leader is no longer the first."""

    async def ask() -> None:
        async with Admin.of(bootstrap) as admin:
            assert not any((await alter_reassignments(admin.cluster, wishes)).values())

    asyncio.run(ask())


# -- list ------------------------------------------------------------------------------------


def test_partitions_are_listed_with_what_is_amiss(
    command: Command, cluster: Deployment, orders: str
) -> None:
    shown = command("partitions", "list", orders).decode().splitlines()
    assert shown[0].split() == ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "NOTE"]
    assert [line.split() for line in shown[1:]] == [
        [orders, "0", "1", "1,2", "1,2"],
        [orders, "1", "1", "1,2", "1,2"],
    ]
    reorder(cluster.bootstrap, {TopicPartition(orders, 1): [2, 1]})
    (other,) = eventually(lambda: command.json("partitions", "list", orders, "--not-preferred"))
    assert (other["partition"], other["notes"]) == (1, ["not-preferred"])
    assert command.json("partitions", "list", orders, "--node", "2", "--led") == []
    assert len(command.json("partitions", "list", orders, "--node", "2")) == 2
    assert command.json("partitions", "list", orders, "--under-replicated") == []
    command("partitions", "list", f"{orders}:7", code=1)
    assert f"{orders}-7 does not exist: the topic has 2 partitions" in command.told


# -- move ------------------------------------------------------------------------------------


def test_a_move_is_shown_then_done_and_undone(command: Command, orders: str) -> None:
    shown = command("partitions", "move", f"{orders}:0", "--replicas", "3,2")
    head, row = (line.split() for line in shown.decode().splitlines())
    assert head == ["TOPIC", "PARTITION", "REPLICAS", "NEW-REPLICAS", "COPIES"]
    assert row[:4] == [orders, "0", "1,2", "3,2"]
    assert "dry run: nothing was changed; --execute does it" in command.told
    assert replicas_of(command, orders) == [[1, 2], [1, 2]]
    done = command.json(
        "partitions", "move", f"{orders}:0", "--replicas", "3,2", "--execute",
        "--undo-file", "before.json",
    )  # fmt: skip
    assert done["executed"]
    assert [one["done"] for one in done["partitions"]] == [True]
    assert done["partitions"][0]["bytes"] > 0
    assert replicas_of(command, orders) == [[3, 2], [1, 2]]
    assert json.loads(Path("before.json").read_bytes()) == {
        "version": 1,
        "partitions": [{"topic": orders, "partition": 0, "replicas": [1, 2]}],
    }
    command("partitions", "move", "--from-file", "before.json", "--execute")
    assert replicas_of(command, orders) == [[1, 2], [1, 2]]
    command("partitions", "move", "--from-file", "before.json", "--execute")
    assert "nothing to move: it is so already" in command.told


def test_one_node_takes_the_place_of_another(
    command: Command, cluster: Deployment, orders: str
) -> None:
    command("partitions", "move", orders, "--replace", "1=3", "--execute")
    assert replicas_of(command, orders) == [[3, 2], [3, 2]]
    read = KafkaPython().read(cluster.bootstrap, orders, {0: "beginning", 1: "beginning"})
    assert len(read) == 200


def test_a_throttle_bounds_a_move_which_is_shown_waited_for_and_called_off(
    command: Command, cluster: Deployment, orders: str
) -> None:
    # At a byte a second a fetch comes every eleven seconds: twenty are more than this test takes.
    large = [Sent(b"x" * 400_000, partition=number % 2) for number in range(80)]
    Own().produce(cluster.bootstrap, orders, large)
    begin = ("--replicas", "3,2", "--throttle", "1", "--wait", "0", "--execute")
    command("partitions", "move", orders, *begin, code=1)
    assert "2 moves go on and its throttle stays" in command.told
    first, _other = command.json("partitions", "moves", orders)
    assert (first["adding"], first["removing"]) == ([3], [1])
    command("partitions", "move", orders, "--replicas", "1,3", "--execute", code=1)
    assert "it is being moved: wait, or `barnabas partitions cancel` it" in command.told
    command("partitions", "elect", f"{orders}:0", "--to", "2", "--execute", code=1)
    assert "its replicas are being moved" in command.told
    command("partitions", "moves", "--clear-throttles", code=1)
    assert "2 partitions are being moved: wait, or cancel them" in command.told
    command("partitions", "moves", orders, "--throttle", "2")
    assert {rates[RATES[0]] for rates in throttles(cluster).values()} == {"2"}
    command("partitions", "cancel", f"{orders}:0")
    assert "dry run" in command.told
    assert len(command.json("partitions", "moves", orders)) == 2
    command("partitions", "cancel", orders, "--execute")
    assert "called off 2 of 2 moves" in command.told
    assert "nodes 1,2,3 are still throttled" in command.told
    assert command.json("partitions", "moves", orders) == []
    # Their order is lost, as in Kafka: what stays comes first while a move is under way.
    assert [sorted(replicas) for replicas in replicas_of(command, orders)] == [[1, 2], [1, 2]]
    command("partitions", "moves", "--clear-throttles")
    assert f"took back the throttles of node 1, node 2, node 3, topic {orders}" in command.told
    assert throttles(cluster) == {}


def throttles(cluster: Deployment) -> dict[int, dict[str, str]]:
    async def ask() -> dict[int, dict[str, str]]:
        async with Admin.of(cluster.bootstrap) as admin:
            return await throttled_nodes(admin.cluster, NODES)

    return asyncio.run(ask())


def test_a_throttle_is_taken_back_when_the_move_is_done(
    command: Command, cluster: Deployment, orders: str
) -> None:
    command(
        "partitions", "move", orders, "--replicas", "3,2", "--throttle", "50000000", "--execute"
    )
    assert "done; `barnabas partitions move --from-file" in command.told
    assert replicas_of(command, orders) == [[3, 2], [3, 2]]
    assert throttles(cluster) == {}
    settings = command.json("topics", "describe", orders)[0]["settings"]
    assert not [one for one in settings if "throttled" in one["name"]]


def test_what_cannot_be_moved_is_refused_before_anything_is(command: Command, orders: str) -> None:
    command("partitions", "move", orders, "--replicas", "1,9", "--execute", code=1)
    assert "no node 9 is up: there are 1,2,3" in command.told
    command("partitions", "move", orders, "--replicas", "1,1", code=2)
    assert "1,1 names a node twice" in command.told
    command("partitions", "move", "--replicas", "1,2", code=2)
    Path("plan.json").write_text('{"version": 1, "partitions": [{"topic": "x"}]}')
    command("partitions", "move", "--from-file", "plan.json", code=1)
    assert "plan.json is no file of replicas: it has no 'partition'" in command.told
    command("partitions", "move", orders, "--replicas", "1,2,3")
    assert f"Warn: {orders} has 2 replicas and is to have 3" in command.told
    assert list(Path().glob("barnabas-undo-*")) == []


# -- elect -----------------------------------------------------------------------------------


def test_preferred_leaders_are_elected_where_others_lead(
    command: Command, cluster: Deployment, orders: str
) -> None:
    reorder(cluster.bootstrap, {TopicPartition(orders, 1): [2, 1]})
    eventually(lambda: command.json("partitions", "list", orders, "--not-preferred"))
    shown = command.json("partitions", "elect", orders)
    assert [(one["leader"], one["new_leader"]) for one in shown["partitions"]] == [(1, 2)]
    assert leaders_of(command, orders) == [1, 1]
    command("partitions", "elect", orders, "--preferred", "--execute")
    assert "elected the leaders of 1 of 1 partitions" in command.told
    assert leaders_of(command, orders) == [1, 2]
    command("partitions", "elect", orders, "--execute")
    assert "nothing to elect" in command.told


def test_a_chosen_replica_leads_and_stays_the_preferred_one(command: Command, orders: str) -> None:
    done = command.json("partitions", "elect", f"{orders}:0", "--to", "2", "--execute")
    assert leaders_of(command, orders) == [2, 1]
    assert replicas_of(command, orders) == [[2, 1], [1, 2]]
    command("partitions", "elect", "--from-file", done["undo_file"], "--execute")
    assert leaders_of(command, orders) == [1, 1]
    command("partitions", "elect", f"{orders}:0", "--to", "3", "--execute", code=1)
    assert "node 3 has no copy" in command.told
    command("partitions", "elect", "--to", "3", code=2)


def test_an_unclean_election_asks_for_the_name_of_the_topic_again(
    command: Command, orders: str
) -> None:
    command("partitions", "elect", "--unclean", code=2)
    command("partitions", "elect", orders, "--unclean", "--execute", code=2)
    assert f"Type its name again to do it: --confirm {orders}" in command.told
    command("partitions", "elect", orders, "--unclean", "--confirm", "other", "--execute", code=2)
    command("partitions", "elect", orders, "--unclean", "--confirm", orders, "--execute")
    assert "each of these partitions has a leader" in command.told


@pytest.mark.skipif(is_apache_kafka(), reason="its nodes are not stopped one by one here")
def test_an_unclean_election_gives_a_leader_to_what_lost_all_in_sync_replicas(
    deploy_fresh: Deploy,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    topic: str,
) -> None:
    cluster = deploy_fresh(3)
    assert isinstance(cluster, OwnCluster)
    nodes = cluster.nodes
    command = Command(cluster, capsysbinary, monkeypatch, tmp_path)
    made(command, cluster, topic, "1,2")
    nodes[1].kill()
    alive = f"{nodes[0].address},{nodes[2].address}"
    at = ("--bootstrap", alive)
    eventually(
        lambda: len(command.json("partitions", "list", topic, "--under-replicated", *at)) == 2,
        what="the dead node leaves the in-sync set",
        within_s=240,
    )
    nodes[0].kill()
    nodes[1].spawn()
    nodes[1].let_serve()
    nodes[1].wait_ready()
    at = ("--bootstrap", f"{nodes[1].address},{nodes[2].address}")

    def is_without_leader() -> bool:
        return len(command.json("partitions", "list", topic, "--without-leader", *at)) == 2

    eventually(is_without_leader, within_s=240, what="nobody leads")
    command("partitions", "elect", topic, "--preferred", *at, code=1)
    assert "node 1 is not up, or not in sync" in command.told
    shown = command.json("partitions", "elect", topic, "--unclean", *at)
    assert [one["new_leader"] for one in shown["partitions"]] == [2, 2]
    done = ("--unclean", "--confirm", topic, "--execute")
    command("partitions", "elect", topic, *done, *at)
    assert [one["leader"] for one in command.json("partitions", "list", topic, *at)] == [2, 2]

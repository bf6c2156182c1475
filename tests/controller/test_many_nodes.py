"""What the controller does for a partition does not grow with the nodes, nor with all partitions.

Source: docs/spec/cluster.md §2.4 and §2.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.controller.channel_manager import QueuedRequest
from barnabas.broker.controller.context import ControllerContext, Leadership, LiveNode, Partition
from barnabas.broker.controller.control_requests import ControlRequestBuilder
from barnabas.broker.controller.leader_election import (
    ElectionResult,
    elect_for_new_partition,
    elect_for_offline_partition,
    elect_preferred_replica,
)
from barnabas.broker.controller.partition_state_machine import PartitionStateMachine
from barnabas.broker.controller.request_batch import ControlRequestBatch
from barnabas.broker.controller.state_transitions import PartitionStatus
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest
from barnabas.protocol.zookeeper import znodes

NODES = 100
PARTITIONS = 50
NOBODY = cast("Any", None)


Key = TypeVar("Key")
Value = TypeVar("Value")


class Walked(dict[Key, Value]):
    """Notes how often somebody goes through all of it."""

    walks = 0

    def __iter__(self) -> Iterator[Key]:
        self.walks += 1
        return super().__iter__()

    def keys(self) -> Any:
        self.walks += 1
        return super().keys()


@dataclass
class SentOrders:
    """In place of the channels."""

    sent: list[tuple[int, Any]] = field(default_factory=list)

    def send(self, node: int, order: QueuedRequest) -> None:
        self.sent.append((node, order.message))


def live_node(node: int) -> LiveNode:
    endpoints = {"INTERNAL": ("host", 7000 + node)}
    registration = znodes.BrokerRegistration(endpoints=endpoints, timestamp=0, roles=("broker",))
    return LiveNode(node, 1, registration)


def led_by(leader: int, isr: tuple[int, ...]) -> Leadership:
    return Leadership(leader, 0, isr, controller_epoch=1, zk_version=0, mzxid=0)


def context_of(nodes: int) -> tuple[ControllerContext, Walked[int, LiveNode]]:
    """Partitions of one topic, each with a replica on three nodes."""
    walked = Walked({node: live_node(node) for node in range(nodes)})
    replicas = {index: (index, index + 1, index + 2) for index in range(PARTITIONS)}
    context = ControllerContext(nodes=walked, assignments={"t": dict(replicas)})
    context.leaders = {("t", index): led_by(index, nodes) for index, nodes in replicas.items()}
    return context, walked


def batch_of(context: ControllerContext) -> tuple[ControlRequestBatch, SentOrders]:
    orders = SentOrders()
    builder = ControlRequestBuilder(context, 1, 1, "INTERNAL")
    handovers: Any = type("NoHandovers", (), {"is_held": lambda self, node, partition: False})()
    return ControlRequestBatch(context, builder, cast("Any", orders), NOBODY, handovers), orders


def machine_of(context: ControllerContext, *, may_be_unclean: bool) -> PartitionStateMachine:
    return PartitionStateMachine(
        context, NOBODY, lambda topic: may_be_unclean, NOBODY, lambda node: False
    )


def informed(orders: SentOrders) -> list[int]:
    return [node for node, message in orders.sent if isinstance(message, UpdateMetadataRequest)]


def test_leaders_are_noted_without_going_through_all_nodes() -> None:
    context, nodes = context_of(NODES)
    batch, orders = batch_of(context)
    for partition in context.all_partitions():
        batch.lead(context.assigned(partition), partition)
    assert nodes.walks == 0
    batch.send()
    assert informed(orders) == list(range(NODES))


def test_elections_do_not_go_through_all_nodes() -> None:
    context, nodes = context_of(NODES)
    context.shutting_down = {1}
    machine = machine_of(context, may_be_unclean=True)
    for partition, state in context.leaders.items():
        for strategy in (machine.offline, machine.unclean, machine.moved, machine.preferred):
            strategy(partition, state)
    assert nodes.walks == 0


@dataclass
class AskedStates:
    """In place of the state znodes: creates none."""

    has_partitions: list[dict[str, bool]] = field(default_factory=list)

    async def create(
        self, choices: Mapping[Partition, ElectionResult], has_partitions: dict[str, bool]
    ) -> dict[Partition, Leadership]:
        self.has_partitions.append(has_partitions)
        return {}


async def test_new_partitions_are_created_without_going_through_all_leaders() -> None:
    context, _nodes = context_of(4)
    leaders = context.leaders = Walked(context.leaders)
    new = [("t", PARTITIONS), ("u", 0)]
    context.assignments["t"][PARTITIONS] = context.assignments.setdefault("u", {})[0] = (1, 2)
    context.partitions = dict.fromkeys(new, PartitionStatus.NEW)
    states = AskedStates()
    machine = PartitionStateMachine(context, cast("Any", states), NOBODY, NOBODY, NOBODY)
    batch, _orders = batch_of(context)
    await machine.create(new, batch)
    await machine.create([], batch)
    assert states.has_partitions == [{"t": True, "u": False}, {}]
    assert leaders.walks == 0


def test_metadata_goes_to_all_registered_nodes_or_to_those_that_are_named_and_only_once() -> None:
    context, _nodes = context_of(4)
    batch, orders = batch_of(context)
    batch.publish([("t", 0)], [2, 9])
    batch.send()
    assert informed(orders) == [2]
    batch.publish([("t", 0)], [2])
    batch.publish([])
    batch.send()
    assert informed(orders) == [2, 0, 1, 2, 3]
    batch.send()
    batch.publish([("t", 0)], [3])
    batch.send()
    assert informed(orders) == [2, 0, 1, 2, 3, 3]


NODE_IDS = st.integers(0, 5)


@given(
    nodes=st.sets(NODE_IDS),
    shutting_down=st.sets(NODE_IDS),
    failed=st.sets(NODE_IDS),
    replicas=st.lists(NODE_IDS, unique=True, min_size=1),
    isr=st.lists(NODE_IDS, unique=True),
    may_be_unclean=st.booleans(),
)
def test_whom_an_election_chooses_is_the_same_as_if_all_nodes_were_asked(
    nodes: set[int],
    shutting_down: set[int],
    failed: set[int],
    replicas: list[int],
    isr: list[int],
    *,
    may_be_unclean: bool,
) -> None:
    """A state may name nodes as in sync that have no replica."""
    context = ControllerContext(
        nodes={node: live_node(node) for node in nodes},
        shutting_down=shutting_down,
        assignments={"t": {0: tuple(replicas)}},
        failed_replicas={("t", 0, node) for node in failed},
    )
    online = nodes - shutting_down - failed
    state = led_by(-1, tuple(isr))
    machine = machine_of(context, may_be_unclean=may_be_unclean)
    assert machine.offline(("t", 0), state) == elect_for_offline_partition(
        replicas, isr, online, may_be_unclean=may_be_unclean
    )
    assert machine.preferred(("t", 0), state) == elect_preferred_replica(replicas, isr, online)
    assert elect_for_new_partition(
        replicas, context.online_among(replicas, ("t", 0))
    ) == elect_for_new_partition(replicas, online)

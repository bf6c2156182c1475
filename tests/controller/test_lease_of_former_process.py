"""A node registered anew: the process that had its id before may live on, and answer, elsewhere."""

from __future__ import annotations

from dataclasses import replace

from barnabas.broker.controller.components import ControllerComponents
from barnabas.broker.liveness.controller_authority import ControllerAuthority
from barnabas.broker.liveness.failure_detector import FailureDetector
from barnabas.broker.liveness.lease import TimedLease
from barnabas.broker.liveness.voter_set import VoterSet
from barnabas.broker.settings.liveness_settings import BeaconTimes
from barnabas.protocol.beacon import Beacon, Echo

from .small_cluster import SmallCluster

TIMES = BeaconTimes()


class Led:
    """A partition that node 2 leads, under the lease that controller 1 has given it."""

    def __init__(self, cluster: SmallCluster, components: ControllerComponents) -> None:
        self.now = 100.0
        self.cluster = cluster
        self.components = components
        self.epoch = cluster.nodes[2].registration.broker_epoch
        echoes: list[Echo] = []
        self.failure_detector = FailureDetector(
            "c",
            1,
            TIMES,
            self.clock,
            lambda _, echo: echoes.append(echo),
            TimedLease(self.clock),
            ControllerAuthority(1, TIMES, self.clock),
            lambda: 1,
        )
        self.failure_detector.begin(1)
        self.failure_detector.checked(self.now)
        self.failure_detector.admit(2, self.epoch)
        components.term.failure_detector = self.failure_detector
        assert self.failure_detector.take(Beacon("c", 2, self.epoch, 7, 1, 1))
        assert echoes

    @classmethod
    async def by_node_2(cls, cluster: SmallCluster) -> Led:
        await cluster.start(1)
        await cluster.start(2, ("broker",))
        await cluster.create("u", {0: (2,)})
        await cluster.led("u", 0, 2)
        components = cluster.nodes[1].controller._components
        assert components is not None
        return cls(cluster, components)

    def clock(self) -> float:
        return self.now

    async def look_at_nodes(self) -> None:
        """In the controller's turn: a timer of its own may have it look at this moment, too."""
        controller = self.cluster.nodes[1].controller
        await controller.ask("look at nodes", lambda components: components.nodes.changed())

    async def register_anew(self) -> None:
        node = self.cluster.nodes[2]
        payload = node.registration._payload
        node.registration._payload = replace(payload, timestamp=1)  # another process started later
        node.zookeeper.expire()
        await self.cluster.until(lambda: node.registration.broker_epoch > self.epoch)


async def test_what_a_node_led_is_led_anew_only_once_the_lease_of_its_former_process_is_over(
    cluster: SmallCluster,
) -> None:
    """Cut off from ZooKeeper alone, it does not know that another process has its id."""
    led = await Led.by_node_2(cluster)
    before = await cluster.state("u", 0)
    await led.register_anew()
    await cluster.until(lambda: not led.failure_detector.is_admitted(2))
    await led.look_at_nodes()
    assert (await cluster.state("u", 0)).leader_epoch == before.leader_epoch
    led.now += TIMES.timeout + 0.01
    await led.look_at_nodes()
    assert (await cluster.state("u", 0)).leader_epoch > before.leader_epoch


async def test_a_node_that_said_that_it_leaves_is_taken_back_by_a_young_controller_at_once(
    cluster: SmallCluster,
) -> None:
    """Who was controller says so before its successor begins, which then knows of no lease."""
    led = await Led.by_node_2(cluster)
    leaving = Beacon("c", 2, led.epoch, 7, 2, 1, is_leaving=True)
    assert led.failure_detector.take(leaving)
    led.failure_detector.begin(2, VoterSet(frozenset({1, 2, 3}), 18.0))
    led.failure_detector.checked(led.now)
    assert led.failure_detector.may_hold_lease(2), "not settled: a predecessor may have granted one"
    await led.register_anew()
    await led.look_at_nodes()
    assert led.components.term.context.nodes[2].epoch > led.epoch

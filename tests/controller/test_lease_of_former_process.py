"""A node registered anew: the process that had its id before may live on, and answer, elsewhere."""

from __future__ import annotations

from dataclasses import replace

from barnabas.broker.liveness.controller_authority import ControllerAuthority
from barnabas.broker.liveness.failure_detector import FailureDetector
from barnabas.broker.liveness.lease import TimedLease
from barnabas.broker.settings.liveness_settings import BeaconTimes
from barnabas.protocol.beacon import Beacon, Echo

from .small_cluster import SmallCluster

TIMES = BeaconTimes()


async def test_what_a_node_led_is_led_anew_only_once_the_lease_of_its_former_process_is_over(
    cluster: SmallCluster,
) -> None:
    """Cut off from ZooKeeper alone, it does not know that another process has its id."""
    now = 100.0

    def clock() -> float:
        return now

    echoes: list[Echo] = []
    failure_detector = FailureDetector(
        "c",
        1,
        TIMES,
        clock,
        lambda _, echo: echoes.append(echo),
        TimedLease(clock),
        ControllerAuthority(1, TIMES, clock),
        lambda: 1,
    )
    await cluster.start(1)
    await cluster.start(2, ("broker",))
    await cluster.create("u", {0: (2,)})
    await cluster.led("u", 0, 2)
    components = cluster.nodes[1].controller._components
    assert components is not None
    failure_detector.begin(1)
    failure_detector.checked(now)
    epoch = cluster.nodes[2].registration.broker_epoch
    failure_detector.admit(2, epoch)
    components.term.failure_detector = failure_detector
    assert failure_detector.take(Beacon("c", 2, epoch, 7, 1, 1))
    assert echoes
    before = await cluster.state("u", 0)
    node = cluster.nodes[2].registration
    node._payload = replace(node._payload, timestamp=1)  # another process started later
    cluster.nodes[2].zookeeper.expire()
    await cluster.until(lambda: not failure_detector.is_admitted(2))
    await cluster.until(lambda: cluster.nodes[2].registration.broker_epoch > epoch)
    await components.nodes.changed()
    assert (await cluster.state("u", 0)).leader_epoch == before.leader_epoch
    now += TIMES.timeout + 0.01
    await components.nodes.changed()
    assert (await cluster.state("u", 0)).leader_epoch > before.leader_epoch

"""Beacons over real sockets on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable

import asyncio_dgram
import pytest

from barnabas.broker.liveness.beacon_transport import BeaconTransport
from barnabas.broker.liveness.lease import TimedLease
from barnabas.broker.settings.liveness_settings import BeaconTimes
from barnabas.console.development.ports import LOOPBACK, free_ports


def clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class BeaconingNodes:
    """Some nodes that beat; the first is controller as soon as a test says so."""

    def __init__(self, count: int) -> None:
        ports = free_ports(count)
        self.addresses = {number: (LOOPBACK, port) for number, port in enumerate(ports)}
        self.leases = [TimedLease(clock) for _ in ports]
        self.beacons = [
            BeaconTransport(
                node_id=number,
                cluster_id="c",
                secret="s",
                times=BeaconTimes(),
                clock=clock,
                rng=random.Random(number),
                peers=self._peers_of(number),
                lease=self.leases[number],
            )
            for number in range(count)
        ]

    def _peers_of(self, own: int) -> Callable[[], dict[int, tuple[str, int]]]:
        return lambda: {node: place for node, place in self.addresses.items() if node != own}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All of them beat and listen."""
        for number, beacons in enumerate(self.beacons):
            await beacons.open(*self.addresses[number])
            beacons.beacon_sender.begin_incarnation(10 + number)
            beacons.is_sending = True
        self.tasks = [asyncio.create_task(beacons.run()) for beacons in self.beacons]
        try:
            yield
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            for beacons in self.beacons:
                beacons.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


@pytest.fixture
async def nodes() -> AsyncIterator[BeaconingNodes]:
    running = BeaconingNodes(3)
    async with running.running():
        yield running


async def test_echoes_give_leases_to_nodes_that_were_admitted(nodes: BeaconingNodes) -> None:
    controller = nodes.beacons[0].failure_detector
    controller.begin(1)
    controller.admit(1, 11)

    def is_leased() -> bool:
        controller.checked(clock())  # as often as a controller does: it is sure of itself for T
        return nodes.leases[1].holds()

    await until(is_leased)
    assert not nodes.leases[2].was_held


async def test_a_node_that_leaves_says_so(nodes: BeaconingNodes) -> None:
    controller = nodes.beacons[0].failure_detector
    controller.begin(1)
    await until(lambda: controller.is_heard(1, 11))
    await nodes.beacons[1].leave()
    await until(lambda: not controller.is_heard(1, 11))
    assert not controller.may_hold_lease(1)


async def test_garbage_is_counted_told_once_a_minute_and_changes_nothing(
    nodes: BeaconingNodes, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = await asyncio_dgram.connect(nodes.addresses[0])
    for size in (0, 1, 50, 256, 1000):
        await stranger.send(bytes(size))
    await until(lambda: nodes.beacons[0].refused >= 4)
    stranger.close()
    told = [line for line in caplog.messages if "refused datagrams" in line]
    assert len(told) == 1
    assert f"last_from={LOOPBACK}:" in told[0]
    await until(lambda: nodes.beacons[0].failure_detector.is_heard(1, 11))


async def test_a_peer_to_which_nothing_can_be_sent_costs_the_others_no_beacon(
    nodes: BeaconingNodes,
) -> None:
    nodes.addresses[3] = ("255.255.255.255", 9)  # refused with EACCES
    controller = nodes.beacons[0].failure_detector
    controller.begin(1)
    for number in (1, 2):
        controller.admit(number, 10 + number)
    await until(lambda: min(beacons.beacon_sender._sequence for beacons in nodes.beacons) > 20)

    def are_leased() -> bool:
        controller.checked(clock())
        return all(lease.holds() for lease in nodes.leases[1:]) and not controller.silent(
            {1: 11, 2: 12}
        )

    await until(are_leased)


async def test_a_name_that_can_be_no_host_is_told_and_asked_for_later(
    nodes: BeaconingNodes, caplog: pytest.LogCaptureFixture
) -> None:
    beacons, place = nodes.beacons[0], ("a..b", 9092)
    assert beacons._address_of(place) is None
    await until(lambda: "found no address host=a..b" in caplog.text)
    assert place in beacons._lookups, "it waits before it asks again"


async def test_a_port_that_is_taken_is_an_error_at_once(nodes: BeaconingNodes) -> None:
    with pytest.raises(OSError, match="in use"):
        await nodes.beacons[1].open(*nodes.addresses[0])


async def test_a_bug_met_while_listening_ends_the_transport(
    nodes: BeaconingNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = nodes.beacons[1]
    monkeypatch.setattr(broken, "_take", lambda datagram, sender: 1 / 0)
    with pytest.raises(ExceptionGroup) as raised:
        await nodes.tasks[1]
    assert raised.group_contains(ZeroDivisionError)

"""Clients that send nonsense get an error or a closed connection; the node lives on."""

from __future__ import annotations

from itertools import cycle, islice

import pytest

from benchmarks.server_process import resident_bytes
from tests.harness.deployments import Deployment, is_apache_kafka
from tests.harness.hostile_requests import API_VERSIONS, ATTACKS, UNKNOWN_VERSION
from tests.harness.raw_calls import live_brokers
from tests.harness.raw_connection import Address, Closed, RawConnection, request_frame

MIB = 1 << 20
CLIENTS = 1_000
GROWTH_BYTES_MAX = 20 * MIB
WARM_UP = 100
ANNOUNCED_BYTES = 100 * MIB

needs_our_memory = pytest.mark.skipif(
    is_apache_kafka(), reason="a JVM's resident memory says nothing about its clients"
)


def attack(address: Address, data: bytes) -> bool:
    """Send nonsense; True when the server closes the connection or answers something."""
    with RawConnection(address, timeout_s=60) as link:
        try:
            link.send(data)
            link.receive()
        except Closed:
            return True
        except TimeoutError:
            return False
        return True


def is_alive(address: Address) -> bool:
    with RawConnection(address) as link:
        return bool(live_brokers(link)[0])


@pytest.mark.parametrize("name", ATTACKS)
def test_nonsense_ends_in_a_closed_connection_or_an_error(cluster: Deployment, name: str) -> None:
    assert attack(cluster.addresses[0], ATTACKS[name])
    assert is_alive(cluster.addresses[0])


def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_the_range(
    cluster: Deployment,
) -> None:
    with RawConnection(cluster.addresses[0]) as link:
        later_header = b"\x00"  # from version 3 on, the header ends with a tag section
        names = b"\x04raw\x02" + b"1\x00"
        link.send(request_frame(API_VERSIONS, UNKNOWN_VERSION, later_header + names, 7))
        answer = link.receive()
        assert answer[:14] == b"\x00\x00\x00\x07\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00"
        assert live_brokers(link)[0]


def test_half_a_frame_and_then_nothing_disturbs_nobody(cluster: Deployment) -> None:
    halves = [RawConnection(cluster.addresses[0]) for _ in range(50)]
    for half in halves:
        half.send(request_frame(3, 1, b"\x00\x00\x00\x00")[:-2])
    assert is_alive(cluster.addresses[0])
    for half in halves:
        half.close()
    assert is_alive(cluster.addresses[0])


@needs_our_memory
def test_a_thousand_hostile_clients_leave_no_memory_behind(cluster: Deployment) -> None:
    frames = list(islice(cycle(ATTACKS.values()), WARM_UP + CLIENTS))
    for address in cluster.addresses:
        for frame in frames[:WARM_UP]:
            assert attack(address, frame)
    before = [resident_bytes(pid) for pid in cluster.pids]
    for address, frame in zip(cycle(cluster.addresses), frames[WARM_UP:], strict=False):
        assert attack(address, frame)
    after = [resident_bytes(pid) for pid in cluster.pids]
    growth = [now - then for then, now in zip(before, after, strict=True)]
    assert max(growth, default=0) < GROWTH_BYTES_MAX
    assert all(is_alive(address) for address in cluster.addresses)


@needs_our_memory
def test_announced_bytes_cost_nothing_before_they_come(cluster: Deployment) -> None:
    before = [resident_bytes(pid) for pid in cluster.pids]
    links = [RawConnection(address) for address in cluster.addresses for _ in range(50)]
    for link in links:
        link.send(ANNOUNCED_BYTES.to_bytes(4) + b"\x00\x00\x00\x00")
    assert all(is_alive(address) for address in cluster.addresses)
    after = [resident_bytes(pid) for pid in cluster.pids]
    for link in links:
        link.close()
    growth = [now - then for then, now in zip(before, after, strict=True)]
    assert max(growth, default=0) < GROWTH_BYTES_MAX

"""Datagrams of beacons: what goes in comes out, and nothing else does."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.beacon import (
    BYTES_MAX,
    TAKES_BUNDLES,
    Acknowledgement,
    BadBeacon,
    Beacon,
    BeaconCodec,
    Echo,
    Message,
)

CLUSTER = "Lv9hcL2-QbWMQS-CCnYD2Q"
CODEC = BeaconCodec(CLUSTER, "secret")
NUMBER = st.integers(-1, 2**62)

BEACONS = st.builds(
    Beacon,
    cluster_id=st.just(CLUSTER),
    node_id=NUMBER,
    broker_epoch=NUMBER,
    incarnation=NUMBER,
    sequence=NUMBER,
    sent_us=NUMBER,
    is_leaving=st.booleans(),
    controller_epoch=NUMBER,
    authority_us=NUMBER,
)
ECHOES = st.builds(
    Echo,
    cluster_id=st.just(CLUSTER),
    controller_id=NUMBER,
    controller_epoch=NUMBER,
    node_id=NUMBER,
    incarnation=NUMBER,
    sent_us=NUMBER,
    validity_us=NUMBER,
    is_settled=st.booleans(),
)


def beacon(cluster_id: str = CLUSTER) -> Beacon:
    return Beacon(cluster_id, 1, 20, 300, 4, 5_000_000)


@given(BEACONS | ECHOES)
def test_a_message_comes_out_as_it_went_in(message: Beacon | Echo) -> None:
    datagram = CODEC.encode(message)
    assert len(datagram) <= BYTES_MAX
    assert CODEC.decode(datagram) == message


def test_a_bundle_comes_out_as_it_went_in() -> None:
    most = TAKES_BUNDLES - 1
    ack = Acknowledgement(CLUSTER, most, most, most, most, most, True)
    messages: list[Message] = [ack, Beacon(CLUSTER, most, most, most, most, most, True, most, most)]
    datagram = CODEC.encode_bundle(messages)
    assert len(datagram) <= BYTES_MAX
    assert list(CODEC.decode_all(datagram)) == messages
    with pytest.raises(BadBeacon, match="2 messages"):
        CODEC.decode(datagram)


def test_a_bundle_of_something_else_is_refused() -> None:
    sound = (1, CLUSTER, 1, 20, 300, 4, 5_000_000, False, 0, 0)
    bundles: list[Any] = [
        (4,),
        (4, sound),
        (4, sound, 1),
        (4, sound, ()),
        (4, (4, sound, sound), sound),
    ]
    for values in [*bundles, (4, sound, (1, "other", *sound[2:])), (4, sound, ("x",)), ([],)]:
        with pytest.raises(BadBeacon):
            CODEC.decode_all(CODEC._sealed(values))


@given(st.binary(max_size=300))
def test_bytes_of_a_stranger_are_refused(datagram: bytes) -> None:
    with pytest.raises(BadBeacon):
        CODEC.decode(datagram)


def test_one_changed_bit_anywhere_is_refused() -> None:
    datagram = CODEC.encode(beacon())
    for place in range(len(datagram)):
        forged = bytearray(datagram)
        forged[place] ^= 1
        with pytest.raises(BadBeacon):
            CODEC.decode(bytes(forged))


def test_a_beacon_made_with_another_secret_is_refused() -> None:
    with pytest.raises(BadBeacon, match="secret"):
        CODEC.decode(BeaconCodec(CLUSTER, "other").encode(beacon()))


def test_a_beacon_made_with_the_previous_secret_is_accepted_while_it_is_replaced() -> None:
    """docs/spec/security.md §6 (S73)."""
    replaced = BeaconCodec(CLUSTER, "new", "secret")
    assert replaced.decode(CODEC.encode(beacon())) == beacon()
    assert replaced.decode(BeaconCodec(CLUSTER, "new").encode(beacon())) == beacon()
    with pytest.raises(BadBeacon, match="secret"):
        CODEC.decode(replaced.encode(beacon()))
    with pytest.raises(BadBeacon, match="secret"):
        replaced.decode(BeaconCodec(CLUSTER, "other").encode(beacon()))


def test_a_beacon_of_another_cluster_with_the_same_secret_is_refused() -> None:
    other = BeaconCodec("another", "secret")
    with pytest.raises(BadBeacon, match="another"):
        CODEC.decode(other.encode(beacon("another")))


@pytest.mark.parametrize(
    "values",
    [
        (),
        (3, CLUSTER),
        (1, CLUSTER),
        (1, CLUSTER, "1", 20, 300, 4, 5, False, 0, 0),
        (2, CLUSTER, 1, 2, 3, 4, 5, 6, 1),
        {"kind": 1},
        "beacon",
    ],
)
def test_a_genuine_datagram_of_another_shape_is_refused(values: object) -> None:
    body = msgpack.packb(values)
    with pytest.raises(BadBeacon):
        CODEC.decode(body + CODEC._hash(body))

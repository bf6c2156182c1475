"""Beacons: the datagrams by which nodes say that they live, and controllers that they may answer.

Source: docs/spec/reliability.md §3.1. A datagram is a MessagePack array and a keyed hash of it:

    beacon  1, cluster, node, broker epoch, incarnation, sequence, sent, leaving, epoch, authority
    echo    2, cluster, controller, epoch, node, incarnation, sent, validity, settled
    ack     3, cluster, node, controller, epoch, incarnation, sent, final
    bundle  4, one of the above, another one
    hash    the last 16 bytes: BLAKE2b of what stands before, keyed with the cluster's secret
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from operator import attrgetter
from typing import Any, ClassVar, Final

import msgpack

HASH_BYTES: Final = 16
BYTES_MAX: Final = 256
"""No honest datagram is longer."""


TAKES_ACKNOWLEDGEMENTS: Final = 1 << 62
"""This bit of an incarnation says that the sender knows acknowledgements; older nodes do not have
it, and would count them as datagrams of strangers."""

TAKES_BUNDLES: Final = 1 << 63
"""This bit says that the sender reads datagrams of two messages, which no older node does."""
_BUNDLE: Final = 4
_BUNDLED_MIN: Final = 2


class BadBeacon(ValueError):  # noqa: N818 - says what it is
    """A datagram that is no beacon of a node of this cluster."""


@dataclass(frozen=True, slots=True)
class Beacon:
    """From every node to every other: I live."""

    KIND: ClassVar[int] = 1

    cluster_id: str
    node_id: int
    broker_epoch: int
    """Of the registration that the sender holds; -1 before the first."""
    incarnation: int
    """Random, another in every life and after every lost session."""
    sequence: int
    """Grows by one with each round; a datagram that comes late or twice shows by it."""
    sent_us: int
    """When it was sent, by the sender's own clock; no other clock is compared with it."""
    is_leaving: bool = False
    """The sender has given up its lease and will not answer again."""
    controller_epoch: int = 0
    """Of a sender that is controller, else 0."""
    authority_us: int = 0
    """For how long the sender may still act as controller, by its own clock; 0 when not at all."""

    @property
    def takes_acknowledgements(self) -> bool:
        """The sender knows what they are."""
        return bool(self.incarnation & TAKES_ACKNOWLEDGEMENTS)

    @property
    def takes_bundles(self) -> bool:
        """The sender reads datagrams of two messages."""
        return bool(self.incarnation & TAKES_BUNDLES)


@dataclass(frozen=True, slots=True)
class Echo:
    """From the controller to one node: you may answer, counted from when you sent this."""

    KIND: ClassVar[int] = 2

    cluster_id: str
    controller_id: int
    controller_epoch: int
    node_id: int
    incarnation: int
    sent_us: int
    """Copied from the beacon."""
    validity_us: int
    """What remained of the controller's own authority."""
    is_settled: bool
    """The controller is in office for so long that no lease of a predecessor still lasts."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """From a voter to the controller: I follow you, and no controller of a lower epoch again."""

    KIND: ClassVar[int] = 3

    cluster_id: str
    node_id: int
    controller_id: int
    controller_epoch: int
    incarnation: int
    """Of the controller, copied from its beacon."""
    sent_us: int
    """Copied from the beacon."""
    is_final: bool
    """No lower epoch was acknowledged for T."""


Message = Beacon | Echo | Acknowledgement


class BeaconCodec:
    """Datagrams of one cluster; those of others, and forged ones, are refused."""

    def __init__(self, cluster_id: str, secret: str, previous: str | None = None) -> None:
        """``previous`` is accepted as well, and nothing is made with it."""
        self._cluster_id = cluster_id
        self._key = _key(secret)
        self._keys = [self._key] if previous is None else [self._key, _key(previous)]

    def encode(self, message: Message) -> bytes:
        """The datagram."""
        return self._sealed((message.KIND, *_FIELDS[message.KIND](message)))

    def encode_bundle(self, messages: Sequence[Message]) -> bytes:
        """One datagram of all of them: its receiver is woken once. See TAKES_BUNDLES."""
        return self._sealed((_BUNDLE, *((one.KIND, *_FIELDS[one.KIND](one)) for one in messages)))

    def decode(self, datagram: bytes) -> Message:
        """The message in a datagram. Raises BadBeacon, whatever the bytes are, also for bundles."""
        messages = self.decode_all(datagram)
        if len(messages) != 1:
            raise BadBeacon(f"{len(messages)} messages")
        return messages[0]

    def decode_all(self, datagram: bytes) -> Sequence[Message]:
        """The messages in a datagram, at least one. Raises BadBeacon, whatever the bytes are."""
        if not HASH_BYTES < len(datagram) <= BYTES_MAX:
            raise BadBeacon(f"{len(datagram)} bytes")
        body, proof = datagram[:-HASH_BYTES], datagram[-HASH_BYTES:]
        for key in self._keys:
            if hmac.compare_digest(self._hash(body, key), proof):
                break
        else:
            raise BadBeacon("not of a node that knows the secret of this cluster")
        messages = _messages(_values(body))
        for message in messages:
            if message.cluster_id != self._cluster_id:
                raise BadBeacon(f"of the cluster {message.cluster_id}")
        return messages

    def _sealed(self, values: Sequence[Any]) -> bytes:
        body: bytes = msgpack.packb(values)
        return body + self._hash(body)

    def _hash(self, body: bytes, key: bytes | None = None) -> bytes:
        return blake2b(body, digest_size=HASH_BYTES, key=key or self._key).digest()


def _key(secret: str) -> bytes:
    return blake2b(secret.encode(), digest_size=32, person=b"barnabas-beacon").digest()


_SHAPES: Final = {
    Beacon.KIND: (Beacon, (str, int, int, int, int, int, bool, int, int)),
    Echo.KIND: (Echo, (str, int, int, int, int, int, int, bool)),
    Acknowledgement.KIND: (Acknowledgement, (str, int, int, int, int, int, bool)),
}

_FIELDS: Final = {
    kind: attrgetter(*[field.name for field in fields(message_class)])
    for kind, (message_class, _) in _SHAPES.items()
}
"""All fields of a message in order; dataclasses.astuple would copy each of them as if it could be
a structure, in ten times the time."""


def _values(body: bytes) -> Sequence[Any]:
    try:
        values = msgpack.unpackb(body, use_list=False)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise BadBeacon(f"no MessagePack: {error}") from error
    if not isinstance(values, tuple) or not values:
        raise BadBeacon("no array")
    return values


def _messages(values: Sequence[Any]) -> Sequence[Message]:
    if values[0] != _BUNDLE:
        return (_message(values),)
    parts = values[1:]
    if len(parts) < _BUNDLED_MIN or not all(isinstance(part, tuple) and part for part in parts):
        raise BadBeacon("a bundle of something else")
    return [_message(part) for part in parts]


def _message(values: Sequence[Any]) -> Message:
    kind, *found = values
    if not isinstance(kind, int) or kind not in _SHAPES:
        raise BadBeacon(f"of the unknown kind {kind!r}")
    message_class, types = _SHAPES[kind]
    if tuple(map(type, found)) != types:
        raise BadBeacon(f"a {message_class.__name__} of other fields")
    message: Message = message_class(*found)
    return message

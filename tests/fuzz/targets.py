"""Every decoder that is given bytes of others, the good bytes it is tried on, what it may raise.

Whoever decodes says with one error class that bytes are bad; a target names it. Where a checksum
or a proof stands before the rest it is made right again after a change, half of the time, or the
rest would never be reached. Source: docs/spec/reliability.md §7.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from functools import partial
from typing import Any, Final

import msgpack
from crc32c import crc32c

from barnabas.broker.net.framing import Framing
from barnabas.broker.security.sasl import SaslServer
from barnabas.broker.settings.properties import parse_properties
from barnabas.broker.storage.producers.producer_snapshots import format_snapshot, parse_snapshot
from barnabas.broker.storage.producers.producer_state import BatchMetadata, ProducerStateEntry
from barnabas.broker.storage.segment.offset_index import OffsetIndex
from barnabas.broker.storage.segment.time_index import TimeIndex
from barnabas.client.consumer.fetched_batches import find_batches
from barnabas.client.errors import DecodingFailed
from barnabas.client.topology import TopicPartition
from barnabas.coordinator.replay import Replay
from barnabas.coordinator.snapshot import HEADER_BYTES, Restoring, SnapshotHeader, frames_of, sealed
from barnabas.protocol import api, audit_topic, consumer_protocol, frame, offsets_topic
from barnabas.protocol.beacon import Acknowledgement, BadBeacon, Beacon, BeaconCodec, Echo
from barnabas.protocol.codec.compiler import decoder, request_decoder
from barnabas.protocol.errors import CorruptRequest, Refused
from barnabas.protocol.log_files import aborted_transactions, checkpoints, producer_snapshot
from barnabas.protocol.records import batch, convert, walk
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.header_walk import HeaderWalk
from barnabas.protocol.records.produce_rules import ProduceRules
from barnabas.protocol.records.validate import prepare
from barnabas.protocol.records.work_limit import TooMuchWork, Work
from barnabas.protocol.zookeeper import znodes
from tests.fuzz.engine import Seed, Target
from tests.harness.hostile_requests import ATTACKS
from tests.harness.sasl_terms import terms
from tests.protocol.golden import document, kafka_bodies
from tests.records import vectors

CLUSTER: Final = "x" * 22
NOW_MS: Final = 1_780_000_000_000
WORK_STEPS: Final = 200_000
Reads = Callable[[bytes], object]


def refusing(read: Reads, *errors: type[BaseException]) -> Reads:
    """The reader, which may raise these."""

    def reading(data: bytes) -> None:
        with contextlib.suppress(*errors):
            read(data)

    return reading


# -- messages ----------------------------------------------------------------------------------


def requests() -> Sequence[Seed]:
    """Every version of every request, as the dispatcher reads it."""
    return [*_messages({spec.request for spec in api.registry().values()}, request_decoder)]


def responses() -> Sequence[Seed]:
    """Every version of every answer, and of what members send each other, as clients read them."""
    asked = {spec.request for spec in api.registry().values()}
    return [*_messages(kafka_bodies().keys() - asked, decoder)]


def _messages(
    classes: Any, made: Callable[[type, int], Callable[[bytes, int], Any]]
) -> Iterator[Seed]:
    for message_class in sorted(classes, key=lambda message: message.__name__):
        readers: dict[int, Reads] = {}
        for body in kafka_bodies().get(message_class, []):
            version = body.version
            if version not in readers:
                readers[version] = refusing(
                    partial(_from_start, made(message_class, version)), CorruptRequest
                )
            name = f"{message_class.__name__} v{version}"
            yield Seed(name, body.data, readers[version])


def _from_start(decode: Callable[[bytes, int], object], data: bytes) -> None:
    decode(data, 0)


def frames() -> Sequence[Seed]:
    """What arrives on a connection: torn at a place, cut into frames, their headers read."""
    whole = [bytes.fromhex(message["frame_hex"]) for message in _golden()["messages"]]
    known = [*whole[:80], *ATTACKS.values(), *STRANGERS.values()]
    read = refusing(_framed, CorruptRequest)
    answers = refusing(lambda data: frame.parse_response_header(data, 1), CorruptRequest)
    return [
        *(Seed(f"frame {place}", data, read) for place, data in enumerate(known)),
        Seed("answer", bytes(9), answers),
    ]


STRANGERS: Final = {
    "a TLS 1.2 hello": bytes.fromhex("1603010200010001fc0303") + bytes(range(256)) * 2,
    "an SSL 2 hello": bytes.fromhex("802e0100020015000000100100800200800300800700c0"),
    "a PROXY line": b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
    "a PROXY 2 header": bytes.fromhex("0d0a0d0a000d0a515549540a2111000c7f0000017f0000011f900050"),
    "HTTP 1.0": b"GET / HTTP/1.0\r\n\r\n",
    "HTTP with a body": b'POST /topics/t HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"a": 1}\n',
    "HTTP 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000012040000000000"),
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "redis": b"*1\r\n$4\r\nPING\r\n",
    "zookeeper": b"ruok",
    "a line feed": b"\n",
}
"""How programs begin to talk that take the port for another's. Written here, after the RFCs."""


def _framed(data: bytes) -> None:
    framing = Framing(1 << 20)
    for piece in (data[:7], data[7 : len(data) // 2], data[max(7, len(data) // 2) :]):
        framing.feed(piece)
        while (found := framing.next()) is not None:
            frame.parse_request_header(found[4:])


def stored_values() -> Sequence[Seed]:
    """Keys and values of internal topics, and what members of a group tell each other."""
    readers: list[Reads] = [
        offsets_topic.parse_key,
        offsets_topic.parse_offset_value,
        offsets_topic.parse_group_value,
        consumer_protocol.parse_subscription,
        consumer_protocol.parse_assignment,
        consumer_protocol.subscribed_topics,
        audit_topic.parse_audit_value,
    ]
    texts = [bytes.fromhex(record["hex"]) for record in _golden()["records"]]
    texts.append(b'{"version":1,"kind":"reset","group":"g","topic":"t","partition":0,"offset":5}')
    return [
        Seed(f"{read.__name__} {place}", data, refusing(read, CorruptRequest))
        for read in readers
        for place, data in enumerate(texts)
    ]


def _golden() -> Any:
    return document("golden-protocol.json")


# -- records -----------------------------------------------------------------------------------


def records() -> Sequence[Seed]:
    """Batches and message sets in every format and codec: as leaders and as clients read them."""
    readers: dict[str, Reads] = {
        "produce": refusing(_produced, Refused, TooMuchWork),
        "produce, sealed": refusing(lambda data: _produced(_resealed(data)), Refused, TooMuchWork),
        "consume": refusing(_consumed, Refused, DecodingFailed),
        "consume, sealed": refusing(
            lambda data: _consumed(_resealed(data)), Refused, DecodingFailed
        ),
        "old client": refusing(_down_converted, Refused, TooMuchWork),
        "recover": _recovered,
    }
    good = {name: vectors.of(name) for name in vectors.SOUND}
    for codec in range(5):
        made = batch.build_batch(
            [(b"k%d" % n, bytes(40)) for n in range(9)], timestamp_ms=1, codec=codec
        )
        good[f"codec {codec}"] = bytes(made)
    return [
        Seed(f"{name}, {how}", data, read)
        for how, read in readers.items()
        for name, data in good.items()
    ]


def _resealed(data: bytes) -> bytes:
    """With size and checksum of a batch made right, where it is long enough to have them."""
    if len(data) < batch.HEADER_BYTES or data[16] != 2:
        return data
    made = bytearray(data)
    struct.pack_into(">i", made, 8, len(made) - 12)
    batch.reseal(made)
    return bytes(made)


def _produced(data: bytes) -> None:
    for version in (2, 9):
        with contextlib.suppress(Refused, TooMuchWork):
            prepare(
                data,
                produce_version=version,
                rules=ProduceRules(is_compacted=True, compression="gzip"),
                now_ms=NOW_MS,
                work=Work(WORK_STEPS),
            )


def _consumed(data: bytes) -> None:
    found = find_batches(data, 0)
    if found.source is not None:
        found.source.records(TopicPartition("t", 0))


def _down_converted(data: bytes) -> None:
    for magic in (0, 1):
        convert.down_convert(data, magic, 0, bytes_max=1 << 20, work=Work(WORK_STEPS))


def _recovered(data: bytes) -> None:
    """Valid is never more than there is, and what was valid is so again."""
    found = walk.walk(data)
    kept = sum(len(entry.data) for entry in found)
    assert kept == found.valid_bytes <= len(data)
    again = walk.walk(data[:kept])
    assert sum(len(entry.data) for entry in again) == kept
    for _ in HeaderWalk(data):
        continue


# -- datagrams and proofs ----------------------------------------------------------------------


def datagrams() -> Sequence[Seed]:
    """Beacons, echoes and acknowledgements, with a right proof and with a wrong one."""
    codec = BeaconCodec(CLUSTER, "secret")
    messages = (
        Beacon(CLUSTER, 1, 7, 1 << 62, 5, 10**15, False, 3, 500_000),
        Echo(CLUSTER, 1, 3, 2, 1 << 61, 10**15, 400_000, True),
        Acknowledgement(CLUSTER, 2, 1, 3, 1 << 62, 10**15, True),
    )
    plain = refusing(codec.decode, BadBeacon)
    proven = refusing(lambda data: codec.decode(data + codec._hash(data)), BadBeacon)
    bodies = [msgpack.packb((message.KIND, *astuple(message))) for message in messages]
    return [
        *(Seed(type(message).__name__, codec.encode(message), plain) for message in messages),
        *(
            Seed(f"{type(message).__name__}, proven", body, proven)
            for message, body in zip(messages, bodies, strict=True)
        ),
    ]


def proofs() -> Sequence[Seed]:
    """SASL tokens, at once and after a handshake of any kind."""
    tokens = (b"\0user\0password", b"user\0user\0password", b"n,,n=user,r=nonce", b"")
    return [
        Seed(
            f"token {token!r} after {mechanism} {version}",
            token,
            partial(_proven, mechanism, version),
        )
        for token in tokens
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "")
        for version in (0, 1)
    ]


_TERMS: Final = terms({"user": "password"}, "PLAIN", "SCRAM-SHA-256")


def _proven(mechanism: str, version: int, token: bytes) -> None:
    exchange = SaslServer(_TERMS, lambda: 0.0)
    with contextlib.suppress(Refused):
        exchange.choose(mechanism, version)
    with contextlib.suppress(Refused):
        exchange.evaluate(token)
    is_right = token.split(b"\0")[1:] == [b"user", b"password"] and token.count(b"\0") == 2
    assert exchange.principal == "User:ANONYMOUS" or (is_right and mechanism == "PLAIN")


# -- znodes ------------------------------------------------------------------------------------

OURS: Final[Sequence[Any]] = (
    znodes.ConfigChange(entity_path="topics/T"),
    znodes.IsrChange(partitions=(znodes.TopicPartition("t", 0),)),
    znodes.LogDirEvent(broker=3),
    znodes.PreferredElection(partitions=(znodes.TopicPartition("t", 0),)),
    znodes.ReassignPartitions(partitions=(znodes.Reassignment("t", 0, (3, 4)),)),
    znodes.TopicAssignment(partitions={0: (1, 2)}, adding={0: (2,)}, topic_id=bytes(range(16))),
    znodes.PartitionState(leader=1, leader_epoch=2, controller_epoch=3, isr=(1,)),
    znodes.ConsumerRegistration(subscription={"t": 2}, timestamp=17),
    znodes.VotersRecord(voters=(1, 2, 3), session_ms=6000, controller_epoch=4),
    znodes.ControllerRecord(broker_id=1, timestamp=5),
    znodes.ClusterId(cluster_id=CLUSTER),
    znodes.ProducerIdBlock(broker=1, start=0, end=999),
    znodes.EntityConfig(config={"segment.bytes": "1000"}),
    znodes.BrokerRegistration(
        endpoints={"PLAINTEXT": ("::1", 9092), "INTERNAL": ("h", 9093)},
        timestamp=17,
        security={"PLAINTEXT": "PLAINTEXT", "INTERNAL": "SASL_PLAINTEXT"},
        rack="r",
        roles=("broker",),
        sends_beacons=True,
    ),
)
JSON_TRAPS: Final = (
    b'{"version":NaN,"partitions":{"0":[1e999]}}',
    b'{"version":1,"version":2}',
    b'{"version":1,"leader":' + b"9" * 5_000 + b"}",
    b"[" * 30_000,
    b'{"version":3,"partitions":{"0":[1]},"topic_id":"\\ud800"}',
)


def payloads() -> Sequence[Seed]:
    """Every znode that is read; what is read can be written, and the same is read again."""
    good = [*OURS]
    found = []
    for one in good:
        read = refusing(partial(_reread, type(one)), ValueError)
        found.append(Seed(type(one).__name__, one.to_json(), read))
        found += [Seed(f"{type(one).__name__} trap", trap, read) for trap in JSON_TRAPS]
    return found


def _reread(payload: Any, data: bytes) -> None:
    try:
        one = payload.from_json(data)
    except ValueError:
        return
    written = one.to_json()
    assert payload.from_json(written).to_json() == written


# -- files -------------------------------------------------------------------------------------


def stored_files() -> Sequence[Seed]:
    """Checkpoints, indexes, snapshots and notes in a data directory."""
    producer = _producer_snapshot()
    texts: dict[str, tuple[bytes, Reads]] = {
        "offsets": (
            b"0\n2\nt 0 15\n__consumer_offsets 3 77\n",
            _text(checkpoints.parse_offsets, checkpoints.BadCheckpoint),
        ),
        "epochs": (
            b"0\n2\n1 0\n4 20\n",
            _text(checkpoints.parse_epochs, checkpoints.BadCheckpoint),
        ),
        "meta.properties": (
            b"#\n#Sat Nov 21 10:51:21 UTC 2026\ncluster.id=abc\nbroker.id=1\nversion=0\n",
            _text(parse_properties),
        ),
        "aborted transactions": (
            b"".join(struct.pack(">hqqqq", 0, 5, n, n + 3, n) for n in range(0, 40, 8)),
            refusing(aborted_transactions.parse_aborted, ValueError),
        ),
        "producers": (producer, refusing(parse_snapshot, producer_snapshot.BadSnapshot)),
        "producers, sealed": (
            producer,
            refusing(
                lambda data: parse_snapshot(_sealed_producers(data)), producer_snapshot.BadSnapshot
            ),
        ),
        "offset index": (b"".join(struct.pack(">ii", n, 70 * n) for n in range(9)), _offset_index),
        "time index": (b"".join(struct.pack(">qi", 10 * n, n) for n in range(9)), _time_index),
        "offsets snapshot": (_offsets_snapshot(), refusing(_restored, CorruptRecords)),
        "offsets snapshot, sealed": (
            _offsets_snapshot()[HEADER_BYTES:],
            refusing(
                lambda data: _restored(sealed(SnapshotHeader(1, 0, 5), [data])), CorruptRecords
            ),
        ),
    }
    return [Seed(name, data, read) for name, (data, read) in texts.items()]


def _text(parse: Callable[[str], object], *errors: type[BaseException]) -> Reads:
    return refusing(lambda data: parse(data.decode()), UnicodeDecodeError, *errors)


def _offset_index(data: bytes) -> None:
    index = OffsetIndex(data[: len(data) // 8 * 8])
    if index.is_plausible(100, 1000):
        assert 0 <= index.lookup(50)[1] <= 1000


def _time_index(data: bytes) -> None:
    index = TimeIndex(data[: len(data) // 12 * 12])
    if index.is_plausible(100):
        assert 0 <= index.lookup(50)[1] <= 100


def _producer_snapshot() -> bytes:
    one = ProducerStateEntry(0, 0, 17, -1)
    one.batches.append(BatchMetadata(0, 3, 9, 3, 17))
    return format_snapshot([(7, one), (8, ProducerStateEntry(1, 2, 18, 4))])


def _sealed_producers(data: bytes) -> bytes:
    """Version, checksum of what follows it, entries."""
    return data[:2] + struct.pack(">I", crc32c(data[6:])) + data[6:] if len(data) > 6 else data


def _offsets_snapshot() -> bytes:
    replay = Replay()
    pairs: list[tuple[bytes | None, bytes | None]] = []
    for number in range(4):
        key = offsets_topic.offset_key(f"g{number % 2}", "t", number)
        pairs.append((key, offsets_topic.offset_value(number, -1, "m" * number, NOW_MS)))
    made = batch.build_batch(pairs, timestamp_ms=NOW_MS)
    for _ in replay.fold(made, 0, 0):
        continue
    return sealed(SnapshotHeader(1, 0, 4), list(frames_of(replay)))


def _restored(data: bytes) -> None:
    header = SnapshotHeader.parse(data)
    restoring = Restoring()
    body = data[HEADER_BYTES:]
    for piece in (body[: len(body) // 3], body[len(body) // 3 :]):
        for _ in restoring.feed(piece):
            continue
    if restoring.crc == header.body_crc and restoring.is_between_frames:
        list(frames_of(restoring.replay))


TARGETS: Final = (
    Target("requests", requests, 100),
    Target("responses", responses, 100),
    Target("frames", frames, 20),
    Target("records", records, 400),
    Target("stored-values", stored_values, 100),
    Target("datagrams", datagrams, 20),
    Target("proofs", proofs, 20),
    Target("znodes", payloads, 60),
    Target("stored-files", stored_files, 60),
)


def target_named(name: str) -> Target:
    """Raises StopIteration for a name of none."""
    return next(target for target in TARGETS if target.name == name)

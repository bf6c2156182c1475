"""A transactional producer made of raw requests: it sends late what no client would send late.

Source: Kafka 3.9's schemas of the versions named; docs/spec/transactions.md §2.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from typing import Final

from .raw_batches import sequenced_batch
from .raw_calls import (
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    Produced,
    find_coordinator,
    leaders,
    produce,
)
from .raw_connection import (
    Address,
    RawConnection,
    Reader,
    addresses_of,
    array,
    request_frame,
    text,
)
from .waiting import eventually

ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28
TIMEOUT_MS: Final = 600_000
_RETRIABLE: Final = (14, 15, 16, 51)
_TRANSACTION: Final = 1


class RawTransactionalProducer:
    """One transactional id with its producer id, epoch and the next sequence of each partition.

    Its transactions time out after ten minutes unless told: none ends while a test lasts.
    """

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self.bootstrap = bootstrap
        self._sequences: dict[tuple[str, int], int] = {}

    def start(self) -> None:
        """InitProducerId v0: a producer id, or the next epoch of the one it has."""
        body = text(self.transactional_id) + struct.pack(">i", self.timeout_ms)

        def started() -> bool:
            answer = self._ask(INIT_PRODUCER_ID, body)
            if answer is None:
                return False
            _throttle, error, self.producer_id, self.epoch = answer.take("ihqh")
            return _is_done(error)

        eventually(started, what=f"a producer id for {self.transactional_id}")

    def add(self, topic: str, *partitions: int) -> None:
        """AddPartitionsToTxn v0: they belong to the transaction, which begins with the first."""
        asked = text(topic) + array(*(struct.pack(">i", index) for index in partitions))

        def added() -> bool:
            answer = self._ask(ADD_PARTITIONS_TO_TXN, self._who() + array(asked))
            if answer is None:
                return False
            answer.number("i")

            def codes() -> list[tuple[int, ...]]:
                answer.text()
                return answer.array(lambda: answer.take("ih"))

            (results,) = answer.array(codes)
            return all(_is_done(error) for _, error in results)

        eventually(added, what=f"{topic} in the transaction of {self.transactional_id}")

    def forget(self, topic: str, partition: int, count: int) -> None:
        """Give the last sequences away again, as librdkafka does when it aborts unanswered."""
        self._sequences[topic, partition] -= count

    def send(
        self, topic: str, partition: int, *values: bytes, timestamp_ms: int | None = None
    ) -> Produced:
        """Produce v3: one transactional batch, whether the partition was added or not."""
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        sequence = self._sequences.get((topic, partition), 0)
        data = transactional_batch(values, self.producer_id, sequence, self.epoch, timestamp_ms)
        self._sequences[topic, partition] = sequence + len(values)
        with RawConnection(leader_of(self.bootstrap, topic, partition)) as link:
            return produce(link, topic, partition, data, transactional_id=self.transactional_id)

    def add_offsets(self, group: str) -> None:
        """AddOffsetsToTxn v0: the offsets partition of a group belongs to the transaction."""

        def added() -> bool:
            answer = self._ask(ADD_OFFSETS_TO_TXN, self._who() + text(group))
            return answer is not None and _is_done(answer.take("ih")[1])

        eventually(added, what=f"{group} in the transaction of {self.transactional_id}")

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """AddOffsetsToTxn v0 and TxnOffsetCommit v0, of no member of the group."""
        self.add_offsets(group)
        rows = [struct.pack(">iq", index, at) + text("") for index, at in offsets.items()]
        who = struct.pack(">qh", self.producer_id, self.epoch)
        body = text(self.transactional_id) + text(group) + who + array(text(topic) + array(*rows))

        def staged() -> bool:
            with RawConnection(addresses_of(self.bootstrap)[0]) as link:
                at = find_coordinator(link, group)
            if not _is_done(at.error):
                return False
            with RawConnection((at.host, at.port)) as link:
                answer = link.call(TXN_OFFSET_COMMIT, 0, body)
            answer.number("i")

            def codes() -> list[tuple[int, ...]]:
                answer.text()
                return answer.array(lambda: answer.take("ih"))

            (results,) = answer.array(codes)
            return all(_is_done(error) for _, error in results)

        eventually(staged, what=f"offsets of {group} in {self.transactional_id}")

    def move(self, bootstrap: str) -> None:
        """The same producer at the same cluster, which somebody else serves now."""
        self.bootstrap = bootstrap

    def end(self, *, is_commit: bool) -> None:
        """EndTxn v0: decided when this returns; the markers follow."""
        body = self._who() + struct.pack(">b", is_commit)

        def ended() -> bool:
            answer = self._ask(END_TXN, body)
            return answer is not None and _is_done(answer.take("ih")[1])

        eventually(ended, what=f"the end of the transaction of {self.transactional_id}")

    def ask_to_end_and_hang_up(self, *, is_commit: bool) -> None:
        """EndTxn v0 of somebody who is gone before it can be answered."""
        address = self._coordinator()
        assert address is not None
        body = self._who() + struct.pack(">b", is_commit)
        with RawConnection(address) as link:
            link.send(request_frame(END_TXN, 0, body))

    def _who(self) -> bytes:
        return text(self.transactional_id) + struct.pack(">qh", self.producer_id, self.epoch)

    def _ask(self, key: int, body: bytes) -> Reader | None:
        address = self._coordinator()
        if address is None:
            return None
        with RawConnection(address) as link:
            return link.call(key, 0, body)

    def _coordinator(self) -> Address | None:
        """FindCoordinator v1 of type 1."""
        with RawConnection(addresses_of(self.bootstrap)[0]) as link:
            body = text(self.transactional_id) + struct.pack(">b", _TRANSACTION)
            answer = link.call(FIND_COORDINATOR, 1, body)
        _throttle, error = answer.take("ih")
        if not _is_done(error):
            return None
        answer.text()
        answer.number("i")
        return answer.text() or "", answer.number("i")


def transactional_batch(
    values: Sequence[bytes], producer_id: int, sequence: int, epoch: int, timestamp_ms: int
) -> bytes:
    """A batch with the transactional bit."""
    return sequenced_batch(
        values,
        producer_id,
        sequence,
        epoch=epoch,
        is_transactional=True,
        timestamp_ms=timestamp_ms,
    )


def leader_of(bootstrap: str, topic: str, partition: int) -> Address:
    """Where the leader of a partition listens."""
    with RawConnection(addresses_of(bootstrap)[0]) as link:
        return leaders(link, topic)[partition]


def _is_done(error: int) -> bool:
    """Whether it was done; False where it may succeed later, and an assertion for all else."""
    assert error in (0, *_RETRIABLE), error
    return error == 0

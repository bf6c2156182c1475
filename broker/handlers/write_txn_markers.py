"""WriteTxnMarkers: ends transactions in the partitions that this node leads.

Coordinators send it on the inter-broker listener, those of Apache Kafka beside us included. On
clients' listeners it aborts a hanging transaction, as ``kafka-transactions abort`` asks for it, and
nothing else: what a node may say in Kafka by CLUSTER_ACTION, a node says here by that listener.
Source: docs/spec/transactions.md §3.5.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Mapping
from typing import Any, Final

from barnabas.broker.markers.receiver import MarkerWriter, TransactionEnd
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import write_txn_markers as messages

from .call import Answer, Call, Handler, PendingResponse, response_of
from .cooperative import Turn, in_turns
from .transactions import unless_left

APPEND_STEPS: Final = 10
"""What an append costs, in look-ups."""


class WriteTxnMarkersHandler:
    """Hands each marker to the writer, and answers when all are decided."""

    def __init__(self, writer: MarkerWriter) -> None:
        self._writer = writer

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.WRITE_TXN_MARKERS: unless_left(self.write)}

    def write(self, call: Call) -> Answer:
        """Append all markers, each partition by itself; one that fails hinders no other."""
        codes = _Codes()
        is_client = not call.peer.is_internal
        appending = in_turns(self._append_all(call.request, codes, is_client=is_client))
        if appending is None:
            codes.all_begun()
            return codes.pending
        return _finish(appending, codes)

    def _append_all(
        self, request: messages.WriteTxnMarkersRequest, codes: _Codes, *, is_client: bool
    ) -> Generator[None, None, None]:
        turn = Turn()
        for marker in request.markers:
            end = TransactionEnd(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_result,
            )
            codes.begin(marker.producer_id)
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    on_written = codes.expect(marker.producer_id, topic.name, index)
                    self._writer.write(topic.name, index, end, on_written, is_client=is_client)
                    if turn.is_over(APPEND_STEPS):
                        yield


async def _finish(appending: Coroutine[Any, Any, None], codes: _Codes) -> Any:
    await appending
    codes.all_begun()
    return await response_of(codes.pending)


class _Codes:
    """The outcomes of one request by producer id: markers of one producer are answered as one."""

    def __init__(self) -> None:
        self.pending = PendingResponse()
        self._codes: dict[int, dict[tuple[str, int], int]] = {}
        self._open = 1
        """Markers that are not decided, and one for the request until all are begun."""

    def begin(self, producer_id: int) -> None:
        """A producer is answered, even one whose marker names no partition."""
        self._codes.setdefault(producer_id, {})

    def expect(self, producer_id: int, topic: str, index: int) -> _OnWritten:
        """What to call with the outcome of one marker, once."""
        self._open += 1
        self._codes[producer_id].setdefault((topic, index), ErrorCode.UNKNOWN_SERVER_ERROR)
        return _OnWritten(self, producer_id, (topic, index))

    def all_begun(self) -> None:
        """No marker is to come: answer as soon as those that did are decided."""
        self._decided()

    def decide(self, producer_id: int, partition: tuple[str, int], code: ErrorCode) -> None:
        """Note one outcome; the last one answers."""
        self._codes[producer_id][partition] = code
        self._decided()

    def _decided(self) -> None:
        self._open -= 1
        assert self._open >= 0, "a marker was answered twice"
        if not self._open:
            self.pending.respond(
                messages.WriteTxnMarkersResponse(
                    markers=[
                        messages.MarkerResult(producer_id=producer_id, topics=_by_topic(codes))
                        for producer_id, codes in self._codes.items()
                    ]
                )
            )


class _OnWritten:
    """Notes one marker's outcome."""

    __slots__ = ("_codes", "_partition", "_producer_id")

    def __init__(self, codes: _Codes, producer_id: int, partition: tuple[str, int]) -> None:
        self._codes = codes
        self._producer_id = producer_id
        self._partition = partition

    def __call__(self, code: ErrorCode) -> None:
        self._codes.decide(self._producer_id, self._partition, code)


def _by_topic(codes: Mapping[tuple[str, int], int]) -> list[messages.TopicResult]:
    topics: dict[str, list[messages.PartitionResult]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(
            messages.PartitionResult(partition_index=index, error_code=code)
        )
    return [messages.TopicResult(name=name, partitions=found) for name, found in topics.items()]

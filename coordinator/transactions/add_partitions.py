"""AddPartitionsToTxn and AddOffsetsToTxn: what a transaction writes to is known before it does.

Source: docs/spec/transactions.md §2.5 (KIP-98, KIP-890). Were a partition not in the log before the
first record is in the partition, a coordinator that takes over would not know where a marker is
missing, and readers would wait there for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from barnabas.coordinator.cooperative import CooperativeScheduler, Steps, Turn
from barnabas.coordinator.ports import OFFSETS_TOPIC, TRANSACTION_TOPIC, Caller
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import group_partition
from barnabas.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    PartitionResult,
    Topic,
    TopicResult,
    Transaction,
    TransactionResult,
)

from .gate import Gate
from .ports import TransactionTopics
from .timeouts import Timeouts
from .transaction import TopicPartition
from .transaction import Transaction as Known
from .transaction_state import TransactionState
from .transitions import OnDone, Transitions
from .verification import Results, Verification, identity_problem

BATCHES_SINCE: Final = 4
"""From this version on for several transactions at once, perhaps only to verify them (KIP-890).

Nodes ask so, and clients that take the latest version that they are offered.
"""
PRODUCER_FENCED_SINCE: Final = 2
"""From this version on a fenced producer is told 90; before, 47 (KIP-588)."""
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC})
"""Nothing is added of these, only verified: group offsets come by TxnOffsetCommit."""

Respond: TypeAlias = Callable[[Any], None]


class AddPartitionsHandler:
    """Serves AddPartitionsToTxn and AddOffsetsToTxn."""

    def __init__(
        self,
        gate: Gate,
        topics: TransactionTopics,
        transitions: Transitions,
        timeouts: Timeouts,
        scheduler: CooperativeScheduler,
        now_ms: Callable[[], int],
    ) -> None:
        self._gate = gate
        self._scheduler = scheduler
        self._topics = topics
        self._transitions = transitions
        self._timeouts = timeouts
        self._now_ms = now_ms
        self._verification = Verification(gate)

    # -- AddPartitionsToTxn ----------------------------------------------------------------------

    def add_partitions_to_txn(
        self, request: AddPartitionsToTxnRequest, version: int, _caller: Caller, respond: Respond
    ) -> None:
        """Answer with a code for each partition; of a batch when all of it is decided."""
        self._scheduler.drive(
            self._decide_single(request, version, respond)
            if version < BATCHES_SINCE
            else self._decide_batch(request, respond)
        )

    def _decide_single(
        self, request: AddPartitionsToTxnRequest, version: int, respond: Respond
    ) -> Steps[None]:
        asked = Transaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )

        def answer(results: list[TopicResult]) -> None:
            respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))

        def on_results(code: ErrorCode, others: Mapping[TopicPartition, ErrorCode]) -> None:
            code = _of_version(code, version)
            self._scheduler.drive(_fill_in(asked.topics, code, others, answer))

        yield from self._decide(asked, on_results, Turn())

    def _decide_batch(self, request: AddPartitionsToTxnRequest, respond: Respond) -> Steps[None]:
        results: list[TransactionResult] = []
        undecided = 1  # and each transaction
        turn = Turn()

        def decided() -> None:
            nonlocal undecided
            undecided -= 1
            if not undecided:
                respond(AddPartitionsToTxnResponse(results_by_transaction=results))

        for asked in request.transactions:
            undecided += 1
            result = TransactionResult(transactional_id=asked.transactional_id)
            results.append(result)
            yield from self._decide(asked, self._into(result, asked.topics, decided), turn)
        decided()

    def _into(
        self, result: TransactionResult, topics: Sequence[Topic], decided: Callable[[], None]
    ) -> Results:
        """What fills in the result of one transaction of a batch."""

        def set_results(topic_results: list[TopicResult]) -> None:
            result.topic_results = topic_results
            decided()

        def on_results(code: ErrorCode, others: Mapping[TopicPartition, ErrorCode]) -> None:
            self._scheduler.drive(_fill_in(topics, code, others, set_results))

        return on_results

    def _decide(self, asked: Transaction, on_results: Results, turn: Turn) -> Steps[None]:
        """One transaction: add its partitions, or verify them."""
        partitions, problems = yield from self._examined(asked, turn)
        who = asked.transactional_id, asked.producer_id, asked.producer_epoch
        if problems:
            on_results(ErrorCode.OPERATION_NOT_ATTEMPTED, problems)
        elif not asked.transactional_id:
            on_results(ErrorCode.INVALID_REQUEST, {})
        elif asked.verify_only:
            self._verification.verify(*who, partitions, on_results)
        else:
            self._add(*who, partitions, lambda code: on_results(code, {}))

    def _examined(
        self, asked: Transaction, turn: Turn
    ) -> Steps[tuple[Collection[TopicPartition], dict[TopicPartition, ErrorCode]]]:
        """The partitions, each once, and those that cannot be added.

        One of the latter, and the others are not tried: to report those as added would have the
        client write to them (KAFKA-5322).
        """
        found: dict[TopicPartition, None] = {}
        problems: dict[TopicPartition, ErrorCode] = {}
        for topic in asked.topics:
            if topic.name in INTERNAL_TOPICS and not asked.verify_only:
                code, count = ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0
            else:
                code = self._topics.missing_partition_error()
                count = self._topics.partition_count(topic.name) or 0
            for index in topic.partitions:
                found[topic.name, index] = None
                if not 0 <= index < count:
                    problems[topic.name, index] = code
                if turn.is_over():
                    yield
            if turn.is_over():
                yield
        return found, problems

    # -- AddOffsetsToTxn -------------------------------------------------------------------------

    def add_offsets_to_txn(
        self, request: AddOffsetsToTxnRequest, version: int, _caller: Caller, respond: Respond
    ) -> None:
        """Add the partition of the group's offsets."""

        def on_done(code: ErrorCode) -> None:
            respond(AddOffsetsToTxnResponse(error_code=_of_version(code, version)))

        count = self._topics.partition_count(OFFSETS_TOPIC)
        if not count:
            # Kafka hashes into a topic that is not there, and its marker finds no partition.
            self._topics.create_offsets_topic()
            on_done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        self._add(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [(OFFSETS_TOPIC, group_partition(request.group_id, count))],
            on_done,
        )

    # -- both ------------------------------------------------------------------------------------

    def _add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        on_done: OnDone,
    ) -> None:
        """Add partitions to the transaction of an id, which begins with the first ones."""

        def enter(code: ErrorCode, transaction: Known | None) -> None:
            code = code or identity_problem(transaction, producer_id, producer_epoch)
            if code or transaction is None:
                on_done(code)
            elif transaction.pending is not None:
                on_done(ErrorCode.CONCURRENT_TRANSACTIONS)
            elif transaction.rules.add or _has_all(transaction, partitions):
                on_done(transaction.rules.add)
            else:
                self._append(transaction, partitions, on_done)

        if not transactional_id:
            on_done(ErrorCode.INVALID_REQUEST)
        else:
            self._gate.enter(transactional_id, enter)

    def _append(
        self, transaction: Known, partitions: Collection[TopicPartition], on_done: OnDone
    ) -> None:
        is_first = transaction.state is not TransactionState.ONGOING

        def on_written(code: ErrorCode) -> None:
            if not code and is_first:
                self._timeouts.begin(transaction)
            on_done(code)

        self._transitions.write(
            transaction,
            TransactionState.ONGOING,
            transaction.with_partitions(partitions, self._now_ms()),
            on_written,
        )


def _has_all(transaction: Known, partitions: Collection[TopicPartition]) -> bool:
    """Whether nothing is left to be added to the open transaction."""
    return transaction.state is TransactionState.ONGOING and set(
        transaction.metadata.partitions
    ).issuperset(partitions)


def _fill_in(
    topics: Sequence[Topic],
    code: ErrorCode,
    others: Mapping[TopicPartition, ErrorCode],
    on_filled: Callable[[list[TopicResult]], None],
) -> Steps[None]:
    """The result of each partition, as it was asked for: ``code``, or what ``others`` has."""
    results: list[TopicResult] = []
    turn = Turn()
    for topic in topics:
        of_topic: list[PartitionResult] = []
        for index in topic.partitions:
            of_topic.append(
                PartitionResult(
                    partition_index=index,
                    partition_error_code=others.get((topic.name, index), code),
                )
            )
            if turn.is_over():
                yield
        results.append(TopicResult(name=topic.name, results_by_partition=of_topic))
        if turn.is_over():
            yield
    on_filled(results)


def _of_version(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code

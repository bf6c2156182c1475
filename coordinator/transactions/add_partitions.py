"""AddPartitionsToTxn and AddOffsetsToTxn: what a transaction writes to is known before it does.

Source: docs/spec/transactions.md §2.5 (KIP-98, KIP-890). Were a partition not in the log before the
first record is in the partition, a coordinator that takes over would not know where a marker is
missing, and readers would wait there for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

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
    TransactionResult,
)

from .gate import Gate
from .ports import TransactionTopics
from .timeouts import Timeouts
from .transaction import TopicPartition, Transaction
from .transaction_state import TransactionState
from .transitions import OnDone, Transitions
from .verification import Results, Verification, identity_problem

BATCHES_SINCE: Final = 4
"""From this version on only nodes ask, for several transactions at once (KIP-890)."""
PRODUCER_FENCED_SINCE: Final = 2
"""From this version on a fenced producer is told 90; before, 47 (KIP-588)."""
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC})
"""No client writes to these: group offsets come by TxnOffsetCommit."""

Respond: TypeAlias = Callable[[Any], None]


class AddPartitionsHandler:
    """Serves AddPartitionsToTxn and AddOffsetsToTxn."""

    def __init__(
        self,
        gate: Gate,
        topics: TransactionTopics,
        transitions: Transitions,
        timeouts: Timeouts,
        now_ms: Callable[[], int],
    ) -> None:
        self._gate = gate
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
        if version < BATCHES_SINCE:
            self._add_of_client(request, version, respond)
        else:
            self._decide_batch(request, respond)

    def _add_of_client(
        self, request: AddPartitionsToTxnRequest, version: int, respond: Respond
    ) -> None:
        topics = request.v3_and_below_topics

        def on_results(code: ErrorCode, others: Mapping[TopicPartition, ErrorCode]) -> None:
            results = _results(topics, _of_version(code, version), others)
            respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))

        problems = self._problems(topics, is_client=True)
        if problems:
            on_results(ErrorCode.OPERATION_NOT_ATTEMPTED, problems)
            return
        self._add(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            _partitions(topics),
            lambda code: on_results(code, {}),
        )

    def _decide_batch(self, request: AddPartitionsToTxnRequest, respond: Respond) -> None:
        results: list[TransactionResult] = []
        undecided = 1  # and each transaction

        def decided() -> None:
            nonlocal undecided
            undecided -= 1
            if not undecided:
                respond(AddPartitionsToTxnResponse(results_by_transaction=results))

        for transaction in request.transactions:
            undecided += 1
            result = TransactionResult(transactional_id=transaction.transactional_id)
            results.append(result)
            self._decide_one(transaction, _into(result, transaction.topics, decided))
        decided()

    def _decide_one(self, asked: Any, on_results: Results) -> None:
        """One transaction of a batch."""
        problems = self._problems(asked.topics, is_client=False)
        if problems:
            on_results(ErrorCode.OPERATION_NOT_ATTEMPTED, problems)
            return
        partitions = _partitions(asked.topics)
        if not asked.verify_only:
            self._add(
                asked.transactional_id,
                asked.producer_id,
                asked.producer_epoch,
                partitions,
                lambda code: on_results(code, {}),
            )
        elif not asked.transactional_id:
            on_results(ErrorCode.INVALID_REQUEST, {})
        else:
            self._verification.verify(
                asked.transactional_id,
                asked.producer_id,
                asked.producer_epoch,
                partitions,
                on_results,
            )

    def _problems(
        self, topics: Sequence[Topic], *, is_client: bool
    ) -> dict[TopicPartition, ErrorCode]:
        """Partitions that cannot be added. One of them, and the others are not tried.

        To report those as added would have the client write to them (KAFKA-5322).
        """
        problems: dict[TopicPartition, ErrorCode] = {}
        for topic in topics:
            if is_client and topic.name in INTERNAL_TOPICS:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                count = 0
            else:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                count = self._topics.partition_count(topic.name) or 0
            for index in topic.partitions:
                if not 0 <= index < count:
                    problems[topic.name, index] = code
        return problems

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
        partitions: Sequence[TopicPartition],
        on_done: OnDone,
    ) -> None:
        """Add partitions to the transaction of an id, which begins with the first ones."""

        def enter(code: ErrorCode, transaction: Transaction | None) -> None:
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
        self, transaction: Transaction, partitions: Sequence[TopicPartition], on_done: OnDone
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


def _has_all(transaction: Transaction, partitions: Sequence[TopicPartition]) -> bool:
    """Whether nothing is left to be added to the open transaction."""
    return transaction.state is TransactionState.ONGOING and set(
        transaction.metadata.partitions
    ).issuperset(partitions)


def _partitions(topics: Sequence[Topic]) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _into(
    result: TransactionResult, topics: Sequence[Topic], decided: Callable[[], None]
) -> Results:
    """What fills in the result of one transaction of a batch."""

    def on_results(code: ErrorCode, others: Mapping[TopicPartition, ErrorCode]) -> None:
        result.topic_results = _results(topics, code, others)
        decided()

    return on_results


def _results(
    topics: Sequence[Topic], code: ErrorCode, others: Mapping[TopicPartition, ErrorCode]
) -> list[TopicResult]:
    return [
        TopicResult(
            name=topic.name,
            results_by_partition=[
                PartitionResult(
                    partition_index=index,
                    partition_error_code=others.get((topic.name, index), code),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _of_version(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code

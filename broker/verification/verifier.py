"""Asks transaction coordinators whether partitions are part of a transaction.

    produce, TxnOffsetCommit ── question ─┬─ this node coordinates the id: asked at once
                                          └─ queue of its node ── one AddPartitionsToTxn under way

Answers are given as raw codes: handlers translate them for their clients. One of Kafka's rules is
not kept: there a question of a higher epoch pushes out one that waits, with 47, which ends the
older producer; anybody could do that with a made-up epoch. Here the second question about an id
goes with the next request, and the coordinator alone judges epochs.

Source: docs/spec/transactions.md §5.3; KIP-890; AddPartitionsToTxnManager (3.9).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from barnabas.broker.runtime.latency import Latency
from barnabas.broker.runtime.node_rounds import Dial, Locate, NodeRounds
from barnabas.client.connection.connection import Connection
from barnabas.client.errors import UnsupportedVersion, known_code
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import add_partitions_to_txn as messages

log = logging.getLogger(__name__)

TopicPartition = tuple[str, int]
Codes = Mapping[TopicPartition, ErrorCode]
AskHere = Callable[[messages.AddPartitionsToTxnRequest, int, Callable[[Any], None]], None]
"""Request, version, and where the answer goes: this node's own coordinator."""

BATCH_SINCE: Final = 4
"""AddPartitionsToTxn of several transactions, with ``verify_only``."""
VERSION_MAX: Final = 5
TRANSACTIONS_MAX: Final = 1000
"""In one request; more wait for the next."""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """Whether ``partitions`` are part of the producer's transaction now."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]
    on_answer: Callable[[Codes], None]
    """Called once, with a code for each partition."""


class Verifier(Protocol):
    """Who asks coordinators."""

    def ask(self, question: Question) -> None:
        """Have it answered, perhaps before this returns."""


class TransactionVerifier:
    """Implements Verifier for one node; :meth:`run` asks those for other nodes."""

    def __init__(
        self,
        node_id: int,
        *,
        coordinator_of: Callable[[str], int | None],
        ask_here: AskHere,
        dial: Dial,
        locate: Locate,
        timeout_ms: int,
        now: Callable[[], float],
    ) -> None:
        """``coordinator_of`` gives the node that leads the id's partition of the transaction log.

        ``now`` is the loop's time.
        """
        self._node_id = node_id
        self._coordinator_of = coordinator_of
        self._ask_here = ask_here
        self._timeout_ms = timeout_ms
        self._now = now
        self._waiting: dict[int, deque[Question]] = {}
        """Questions by node, in order."""
        self._asked: dict[int, dict[str, Question]] = {}
        """Questions of the request under way, by node and transactional id."""
        self._began: dict[Question, float] = {}
        self._rounds = NodeRounds(self, dial, locate)
        self._is_noted: set[int] = set()
        """Nodes that were found not to verify."""
        self.latency = Latency()
        """From the question to its answer."""
        self.failures = 0
        """Partitions of which the answer was not "yes"."""

    async def run(self) -> None:
        """Ask other nodes until cancelled."""
        await self._rounds.run()

    def ask(self, question: Question) -> None:
        """Have a question answered, perhaps before this returns."""
        self._began[question] = self._now()
        node = self._coordinator_of(question.transactional_id)
        if node is None:
            self._answer_all(question, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif node == self._node_id:
            self._ask_here(_request([question]), VERSION_MAX, lambda it: self._take([question], it))
        else:
            self._waiting.setdefault(node, deque()).append(question)
            self._rounds.wake(node)

    def metadata_changed(self) -> None:
        """Leaders may have moved: whoever waits for a former one is to ask again.

        A node that hangs would else hold up the producers of its ids until the request times out.
        """
        moved: list[Question] = []
        for node, queue in self._waiting.items():
            left: deque[Question] = deque()
            for one in queue:
                is_there = self._coordinator_of(one.transactional_id) == node
                (left if is_there else moved).append(one)
            self._waiting[node] = left
        for node, asked in self._asked.items():
            gone = [one for key, one in asked.items() if self._coordinator_of(key) != node]
            for question in gone:
                del asked[question.transactional_id]
            moved += gone
            if not asked:
                self._rounds.give_up(node)
        self._answer_each(moved, ErrorCode.NOT_COORDINATOR)

    # Rounds with another node

    def has_work(self, node: int) -> bool:
        """Whether questions wait for a node."""
        return bool(self._waiting.get(node))

    async def exchange(self, node: int, link: Connection) -> None:
        """Ask what waits for a node. Raises KafkaError or OSError."""
        try:
            version = link.version_of(messages.AddPartitionsToTxnRequest, VERSION_MAX)
        except UnsupportedVersion:
            version = -1
        if version < BATCH_SINCE:
            self._pass_unverified(node)
            return
        asked = self._asked[node] = self._next_questions(node)
        try:
            answer = await link.request(_request(asked.values()), version, self._timeout_ms)
            questions = list(asked.values())
            asked.clear()
            self._take(questions, answer)
        finally:
            # Where the request failed, or was given up, nobody may wait for it any longer.
            left = self._asked.pop(node)
            self._answer_each(list(left.values()), ErrorCode.NETWORK_EXCEPTION)

    def failed(self, node: int, error: Exception) -> None:
        """A node could not be asked: whoever waits for it is told so, and decides anew."""
        log.info("could not verify transactions node=%d: %s", node, error)
        self._answer_each(list(self._waiting.pop(node, ())), ErrorCode.NETWORK_EXCEPTION)

    def _next_questions(self, node: int) -> dict[str, Question]:
        """One of each id, in order; the rest stays."""
        questions: dict[str, Question] = {}
        later: deque[Question] = deque()
        for one in self._waiting.pop(node):
            # The answer names ids, so a second question about one could not be told apart.
            if len(questions) < TRANSACTIONS_MAX and one.transactional_id not in questions:
                questions[one.transactional_id] = one
            else:
                later.append(one)
        if later:
            self._waiting[node] = later
        return questions

    def _pass_unverified(self, node: int) -> None:
        """The node cannot be asked, as none could before 3.6: without this nothing could be
        produced while a cluster is upgraded (KAFKA-16992).
        """
        if node not in self._is_noted:
            self._is_noted.add(node)
            log.warning("appends unverified: node=%d does not verify transactions", node)
        self._answer_each(list(self._waiting.pop(node, ())), ErrorCode.NONE)

    def _take(self, questions: Collection[Question], answer: Any) -> None:
        """The answer to a request that carried ``questions``, of which some may be gone."""
        code = known_code(answer.error_code)
        if code:
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                code = ErrorCode.INVALID_TXN_STATE
            self._answer_each(questions, code)
            return
        results = {
            one.transactional_id: {
                (topic.name, result.partition_index): known_code(result.partition_error_code)
                for topic in one.topic_results
                for result in topic.results_by_partition
            }
            for one in answer.results_by_transaction
        }
        for question in questions:
            codes = results.get(question.transactional_id, {})
            self._answer(
                question,
                {
                    partition: codes.get(partition, ErrorCode.NETWORK_EXCEPTION)
                    for partition in question.partitions
                },
            )

    def _answer_each(self, questions: Collection[Question], code: ErrorCode) -> None:
        for question in questions:
            self._answer_all(question, code)

    def _answer_all(self, question: Question, code: ErrorCode) -> None:
        self._answer(question, dict.fromkeys(question.partitions, code))

    def _answer(self, question: Question, codes: Codes) -> None:
        self.latency.observe(self._now() - self._began.pop(question))
        self.failures += sum(code is not ErrorCode.NONE for code in codes.values())
        question.on_answer(codes)


def _request(questions: Collection[Question]) -> messages.AddPartitionsToTxnRequest:
    return messages.AddPartitionsToTxnRequest(
        transactions=[
            messages.Transaction(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                verify_only=True,
                topics=_by_topic(one.partitions),
            )
            for one in questions
        ]
    )


def _by_topic(partitions: Collection[TopicPartition]) -> list[messages.Topic]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [messages.Topic(name=name, partitions=found) for name, found in topics.items()]

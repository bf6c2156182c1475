"""Produce: appends what producers send, and answers when enough replicas have it.

Source: docs/spec/cluster.md §3.8 and §3.10; docs/spec/log.md §1.8 and §3.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.purgatory import DelayedProduce
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.settings.log_config import FOREVER, LogConfig
from barnabas.broker.storage.producers.verification_guards import VerificationGuard
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import CorruptRequest, ErrorCode, Refused
from barnabas.protocol.messages import produce as messages
from barnabas.protocol.names import is_internal
from barnabas.protocol.records.produce_rules import InvalidRecords, Prepared, ProduceRules
from barnabas.protocol.records.validate import prepare
from barnabas.protocol.records.work_limit import TooMuchWork

from .call import Answer, Call, Handler, PendingResponse, response_of
from .conversion_process import ConversionProcess
from .duplicate_partitions import each_partition_once
from .large_produce import LargeProduce, Ready, TopicPartition, ValidatedBatch, ValidatedOf
from .leader_hints import LeaderHints
from .transactional import (
    NotVerified,
    TransactionalBatches,
    UnverifiedAppend,
    check_one_producer,
)

ADMIN_CLIENT = "__admin_client"
"""The one client id that may write group offsets as records, as at Kafka."""
STORAGE_ERROR_SINCE = 4
"""Older producers do not know 56: they are told 6, and ask somebody else."""
LEADERS_SINCE = 10
"""From here a producer is told who leads where we do not (KIP-951)."""
ACKS = (-1, 0, 1)
TURN_BYTES = 1 << 20
"""A large request appends so much before others are served."""
APPEND_BYTES = 1 << 12
"""What one append costs besides, as bytes."""


@dataclass(slots=True)
class PendingAppend:
    """An append that is not answered yet: where it is, and the offset that must be passed."""

    partition: Partition
    end: int


class AppendResults:
    """How the appends of one request ended, as far as they have."""

    def __init__(self) -> None:
        self.topics: list[messages.TopicResult] = []
        self.results: list[messages.PartitionResult] = []
        self.has_refusals = False
        self.unacknowledged: dict[int, PendingAppend] = {}
        """By index in ``results``."""
        self.unverified: list[UnverifiedAppend] = []
        """Appended once a coordinator has vouched for them; ``has_refusals`` is set with these."""
        self._answers: list[messages.PartitionResult] = []

    def begin(self, topic: str) -> None:
        """What is added from now on is of this topic."""
        self._answers = []
        self.topics.append(messages.TopicResult(name=topic, partition_responses=self._answers))

    def add(self, result: messages.PartitionResult, pending: PendingAppend | None) -> None:
        """One partition's result, which ``pending`` may still change."""
        if pending is not None:
            self.unacknowledged[len(self.results)] = pending
        self.results.append(result)
        self._answers.append(result)

    def replace(
        self, place: int, result: messages.PartitionResult, pending: PendingAppend | None
    ) -> None:
        """What became of a batch that was not decided when its result was added."""
        former = self.results[place]
        former.error_code, former.error_message = result.error_code, result.error_message
        former.base_offset, former.log_start_offset = result.base_offset, result.log_start_offset
        former.log_append_time_ms = result.log_append_time_ms
        if pending is not None:
            self.unacknowledged[place] = pending


class ProduceHandler:
    """Validates, appends, and waits for the high watermark where the producer asks for that."""

    def __init__(
        self,
        replicas: ReplicaManager,
        *,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        transactions: TransactionalBatches,
        conversions: ConversionProcess | None = None,
        leaders: LeaderHints | None = None,
    ) -> None:
        """``leaders`` None: whoever asks the wrong node is not told the right one."""
        self._leaders = leaders
        self._transactions = transactions
        self._replicas = replicas
        self._loop = loop
        self._now_ms = now_ms
        self._rules: dict[int, tuple[LogConfig, ProduceRules]] = {}
        conversions = conversions or ConversionProcess()
        self._inline_work = conversions.inline
        self._large = LargeProduce(
            loop,
            conversions,
            rules_of=self._rules_at,
            now_ms=now_ms,
            append=self._append_in_turns,
        )

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.PRODUCE: self.produce}

    def produce(self, call: Call) -> Answer:
        """Append every partition's batch by itself; one that fails does not hinder the others."""
        request: messages.ProduceRequest = call.request
        if request.topic_data:
            request.topic_data = each_partition_once(request.topic_data)
        if self._large.takes(request):
            return self._large.later(call, {})
        ready: dict[TopicPartition, ValidatedBatch] = {}
        try:
            if not _has_one_batch(request):
                self._check_all(call, ready)
                if request.transactional_id is not None:
                    _check_one_producer(ready.values())
            return self._append_all(call, ready)
        except TooMuchWork:  # before anything was appended
            return self._large.later(call, ready)
        except Refused as refusal:
            return _all_refused(call, refusal)

    def _check_all(self, call: Call, ready: dict[TopicPartition, ValidatedBatch]) -> None:
        """Put what comes of each batch into ``ready``; raises TooMuchWork at the first that may."""
        for topic in call.request.topic_data:
            for wanted in topic.partition_data:
                rules = self._rules_at(topic.name, wanted.index)
                if rules is not None:
                    try:
                        outcome: Prepared | Refused | None = self._check(call, wanted, rules)
                    except Refused as refusal:
                        outcome = refusal
                    ready[topic.name, wanted.index] = ValidatedBatch(rules, outcome)

    def _check(
        self, call: Call, wanted: messages.Partition, rules: ProduceRules
    ) -> Prepared | None:
        return self._inline_work.attempt(
            lambda work: prepare(
                wanted.records,
                produce_version=call.version,
                rules=rules,
                now_ms=self._now_ms(),
                work=work,
            )
        )

    def _append_all(self, call: Call, ready: Ready) -> Answer:
        """``ready`` has the batches that were checked already."""
        outcome = AppendResults()
        for topic in call.request.topic_data:
            outcome.begin(topic.name)
            for wanted in topic.partition_data:
                checked = ready.get((topic.name, wanted.index)) if ready else None
                self._append_safely(call, topic.name, wanted, checked, outcome)
        return self._answer(call, outcome)

    async def _append_in_turns(self, call: Call, checked_of: ValidatedOf) -> Answer:
        """The same for a request that may be large: others are served in between."""
        outcome, size = AppendResults(), 0
        if call.request.transactional_id is not None:
            try:
                await self._check_in_turns(call, checked_of)
            except Refused as refusal:
                return _all_refused(call, refusal)
        for topic in call.request.topic_data:
            outcome.begin(topic.name)
            for wanted in topic.partition_data:
                checked = await checked_of(topic.name, wanted)
                self._append_safely(call, topic.name, wanted, checked, outcome)
                size += APPEND_BYTES + len(wanted.records or b"")
                if size > TURN_BYTES:
                    size = 0
                    await asyncio.sleep(0)
        return self._answer(call, outcome)

    async def _check_in_turns(self, call: Call, checked_of: ValidatedOf) -> None:
        checked = [
            await checked_of(topic.name, wanted)
            for topic in call.request.topic_data
            for wanted in topic.partition_data
        ]
        _check_one_producer([one for one in checked if one is not None])

    def _answer(self, call: Call, outcome: AppendResults) -> Answer:
        if outcome.unverified:
            return self._append_verified(call, outcome)
        if call.request.acks == 0:
            return self._answer_without_acks(call, outcome)
        answer = messages.ProduceResponse(responses=outcome.topics)
        if outcome.has_refusals:
            self._fill_current_leaders(call, answer)
        if not outcome.unacknowledged:
            return answer
        return self._when_committed(call, answer, outcome.results, outcome.unacknowledged)

    def _append_safely(
        self,
        call: Call,
        topic: str,
        wanted: messages.Partition,
        checked: ValidatedBatch | None,
        outcome: AppendResults,
    ) -> None:
        pending = None
        try:
            result, pending = self._append(call, topic, wanted, checked)
        except InvalidRecords as refusal:
            result = _refused(wanted.index, refusal, call.version, refusal.record_errors)
        except Refused as refusal:
            result = _refused(wanted.index, refusal, call.version)
            outcome.has_refusals = True
        except NotVerified as found:
            # A copy, which outlives this call: the connection's next request comes into the memory
            # that the batch is in.
            prepared = found.prepared._replace(batch=bytearray(found.prepared.batch))
            outcome.unverified.append(
                UnverifiedAppend(len(outcome.results), topic, wanted, prepared, found.guard)
            )
            result = messages.PartitionResult(index=wanted.index)  # replaced when that is known
            outcome.has_refusals = True
        outcome.add(result, pending)

    async def _append_verified(self, call: Call, outcome: AppendResults) -> Answer:
        """Ask about the batches that wait for their coordinator, append those, and answer all.

        A coroutine, so that nothing passes it on its connection: the producer's next batch would
        else be appended before this one (docs/wire.md).
        """
        waiting, outcome.unverified = outcome.unverified, []
        codes = await self._transactions.verify(
            call.request.transactional_id, waiting, call.version
        )
        for one in waiting:
            self._append_one_verified(call, one, codes[one], outcome)
        answer = self._answer(call, outcome)
        return await response_of(answer) if isinstance(answer, PendingResponse) else answer

    def _append_one_verified(
        self, call: Call, one: UnverifiedAppend, refusal: Refused | None, outcome: AppendResults
    ) -> None:
        wanted, pending = one.wanted, None
        checked = ValidatedBatch(None, one.prepared, is_final=True)
        try:
            if refusal is not None:
                raise refusal
            result, pending = self._append(call, one.topic, wanted, checked, one.guard)
        except Refused as refused:
            result = _refused(wanted.index, refused, call.version)
        outcome.replace(one.place, result, pending)

    def _append(
        self,
        call: Call,
        topic: str,
        wanted: messages.Partition,
        checked: ValidatedBatch | None,
        guard: VerificationGuard | None = None,
    ) -> tuple[messages.PartitionResult, PendingAppend | None]:
        """Raises Refused, InvalidRecords, or NotVerified where a coordinator has to be asked first.

        ``guard`` is what it was asked with.
        """
        acks = call.request.acks
        if acks not in ACKS:
            raise Refused(ErrorCode.INVALID_REQUIRED_ACKS)
        if is_internal(topic) and not _may_write(call, topic):
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, "only the brokers write here")
        partition = self._replicas.led(topic, wanted.index)
        prepared = self._prepared(call, wanted, partition.log.config, checked)
        start = partition.log.start_offset
        if prepared is None:
            nothing = messages.PartitionResult(
                index=wanted.index, base_offset=-1, log_start_offset=start
            )
            return nothing, None
        if prepared.is_transactional:
            self._transactions.check(
                call.request.transactional_id, prepared, partition.log.producers, guard
            )
        appended = partition.append(prepared.batch, acks=acks, is_client=True)
        result = messages.PartitionResult(
            index=wanted.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.timestamp,
            log_start_offset=appended.log_start_offset,
        )
        end = appended.last_offset + 1
        is_pending = acks == -1 and end > partition.high_watermark
        return result, PendingAppend(partition, end) if is_pending else None

    def _prepared(
        self,
        call: Call,
        wanted: messages.Partition,
        config: LogConfig,
        checked: ValidatedBatch | None,
    ) -> Prepared | None:
        if checked is None:
            return self._check(call, wanted, self._rules_of(config))
        if isinstance(checked.outcome, Refused):
            raise checked.outcome
        return checked.outcome

    def _fill_current_leaders(self, call: Call, answer: messages.ProduceResponse) -> None:
        """Name leader, epoch and address where another node leads by now."""
        if call.version < LEADERS_SINCE or self._leaders is None:
            return
        wrong = [
            (topic.name, result.index, result)
            for topic in answer.responses
            for result in topic.partition_responses
            if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        ]
        answer.node_endpoints = self._leaders.fill_current_leaders(
            wrong, call.peer.listener, messages
        )

    def _when_committed(
        self,
        call: Call,
        answer: messages.ProduceResponse,
        results: Sequence[messages.PartitionResult],
        unacknowledged: Mapping[int, PendingAppend],
    ) -> PendingResponse:
        pending, wait_s = PendingResponse(), call.request.timeout_ms / 1000

        def decided(codes: dict[int, ErrorCode]) -> None:
            for place, code in codes.items():
                if code is not ErrorCode.NONE:
                    results[place].error_code = code
                    results[place].base_offset = -1
            if ErrorCode.NOT_LEADER_OR_FOLLOWER in codes.values():
                self._fill_current_leaders(call, answer)
            pending.respond(answer)

        acks, until = DelayedProduce(decided), self._loop.time() + wait_s
        for place, one in unacknowledged.items():
            one.partition.when_committed(one.end, acks.expect(place), until)
        acks.start(self._loop, wait_s)
        return pending

    def _answer_without_acks(self, call: Call, outcome: AppendResults) -> Answer:
        """With acks 0 a closed connection is the only way to tell of an error.

        Raises CorruptRequest, which closes it and bounds what is logged: such a producer connects
        again at once.
        """
        failures = {result.error_code for result in outcome.results} - {ErrorCode.NONE}
        if failures:
            names = ", ".join(code.name for code in ErrorCode if code in failures)
            raise CorruptRequest(f"without acks: {names}")
        return None

    def _rules_at(self, topic: str, index: int) -> ProduceRules | None:
        try:
            return self._rules_of(self._replicas.led(topic, index).log.config)
        except Refused:
            return None

    def _rules_of(self, config: LogConfig) -> ProduceRules:
        known = self._rules.get(id(config))
        if known is None or known[0] is not config:
            if len(self._rules) >= RULES_MAX:
                self._rules.clear()
            known = self._rules[id(config)] = (config, rules_of(config))
        return known[1]


def _has_one_batch(request: messages.ProduceRequest) -> bool:
    return len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1


def _check_one_producer(batches: Iterable[ValidatedBatch]) -> None:
    check_one_producer(one.outcome for one in batches if isinstance(one.outcome, Prepared))


def _all_refused(call: Call, refusal: Refused) -> messages.ProduceResponse | None:
    """The answer to a request of which nothing is appended."""
    if call.request.acks == 0:
        raise CorruptRequest(f"without acks: {refusal.code.name}")
    return messages.ProduceResponse(
        responses=[
            messages.TopicResult(
                name=topic.name,
                partition_responses=[
                    _refused(wanted.index, refusal, call.version) for wanted in topic.partition_data
                ],
            )
            for topic in call.request.topic_data
        ]
    )


def _may_write(call: Call, topic: str) -> bool:
    """Whether a peer may write to an internal topic: what nodes say of changes, only nodes say.

    So it is with the transaction log, where Kafka believes a client id: the next coordinator that
    loads a record takes it for decided, and would commit or abort anybody's transaction.
    """
    is_of_groups = topic == OFFSETS_TOPIC
    return call.client_id == ADMIN_CLIENT if is_of_groups else call.peer.is_internal


RULES_MAX = 1000


def rules_of(config: LogConfig) -> ProduceRules:
    """What a topic's settings mean for what may be produced to it."""
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    # The older setting counts only where the newer ones are not set, as in Kafka's LogConfig.
    before_max_ms, after_max_ms = (
        config.message_timestamp_difference_max_ms if newer == FOREVER else newer
        for newer in (
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        )
    )
    return ProduceRules(
        message_bytes_max=config.max_message_bytes,
        segment_bytes=config.segment_bytes,
        compression=config.compression_type,
        compression_level=levels.get(config.compression_type),
        timestamp_type=config.message_timestamp_type,
        timestamp_before_max_ms=before_max_ms,
        timestamp_after_max_ms=after_max_ms,
        is_compacted=config.is_compacted,
    )


def _refused(
    index: int, refusal: Refused, version: int, record_errors: Sequence[tuple[int, str]] = ()
) -> messages.PartitionResult:
    code = refusal.code
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return messages.PartitionResult(
        index=index,
        error_code=code,
        base_offset=-1,
        error_message=refusal.message or None,
        record_errors=[
            messages.RecordError(batch_index=place, batch_index_error_message=text)
            for place, text in record_errors
        ],
    )

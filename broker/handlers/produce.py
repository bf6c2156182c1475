"""Produce: appends what producers send, and answers when enough replicas have it.

Source: cluster.md sections 3.8 and 3.10; log.md sections 1.8 and 3.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replicas import Replicas
from barnabas.broker.replication.waits import AckWait
from barnabas.broker.storage.log_config import LogConfig
from barnabas.protocol.api import ApiKey
from barnabas.protocol.audit_topic import AUDIT_TOPIC
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import produce as messages
from barnabas.protocol.names import is_internal
from barnabas.protocol.records.validate import (
    InvalidRecords,
    Prepared,
    ProduceRules,
    prepare,
)

from .call import Answer, Call, Handler, Parked
from .conversions import Conversions
from .large_produce import Checked, LargeProduce, Ready
from .transactional import check_transaction

log = logging.getLogger(__name__)

ADMIN_CLIENT = "__admin_client"
"""The one client id that may write to internal topics."""
STORAGE_ERROR_SINCE = 4
"""Older producers do not know 56: they are told 6, and ask somebody else."""
ACKS = (-1, 0, 1)


@dataclass(slots=True)
class Waiting:
    """An append that is not answered yet: where it is, and the offset that must be passed."""

    partition: Partition
    end: int


class ProduceHandler:
    """Validates, appends, and waits for the high watermark where the producer asks for that."""

    def __init__(
        self,
        replicas: Replicas,
        *,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        conversions: Conversions | None = None,
    ) -> None:
        self._replicas = replicas
        self._loop = loop
        self._now_ms = now_ms
        self._rules: dict[int, tuple[LogConfig, ProduceRules]] = {}
        self._large = LargeProduce(
            loop,
            conversions or Conversions(),
            rules_of=self._rules_at,
            now_ms=now_ms,
            append=self._append_all,
        )

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.PRODUCE: self.produce}

    def produce(self, call: Call) -> Answer:
        """Append every partition's batch by itself; one that fails does not hinder the others."""
        if self._large.takes(call.request):
            return self._large.later(call)
        return self._append_all(call, {})

    def _append_all(self, call: Call, ready: Ready) -> Answer:
        """``ready`` has the batches that were checked already."""
        request: messages.ProduceRequest = call.request
        waiting: dict[int, Waiting] = {}
        results: list[messages.PartitionResult] = []
        topics = []
        for topic in request.topic_data:
            answers = []
            for wanted in topic.partition_data:
                result = self._append_safely(call, topic.name, wanted, waiting, len(results), ready)
                results.append(result)
                answers.append(result)
            topics.append(messages.TopicResult(name=topic.name, partition_responses=answers))
        if request.acks == 0:
            return self._say_nothing(call, results)
        answer = messages.ProduceResponse(responses=topics)
        if not waiting:
            return answer
        return self._when_committed(answer, results, waiting, request.timeout_ms / 1000)

    def _append_safely(
        self,
        call: Call,
        topic: str,
        wanted: messages.Partition,
        waiting: dict[int, Waiting],
        place: int,
        ready: Ready,
    ) -> messages.PartitionResult:
        try:
            checked = ready.get((topic, wanted.index)) if ready else None
            result, pending = self._append(call, topic, wanted, checked)
        except InvalidRecords as refusal:
            return _refused(wanted.index, refusal, call.version, refusal.record_errors)
        except Refused as refusal:
            return _refused(wanted.index, refusal, call.version)
        if pending is not None:
            waiting[place] = pending
        return result

    def _append(
        self, call: Call, topic: str, wanted: messages.Partition, checked: Checked | None
    ) -> tuple[messages.PartitionResult, Waiting | None]:
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
            check_transaction(call.request.transactional_id, prepared, partition.log.producers)
        appended = partition.append(prepared.batch, acks=acks, is_client=True)
        result = messages.PartitionResult(
            index=wanted.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.timestamp,
            log_start_offset=appended.log_start_offset,
        )
        end = appended.last_offset + 1
        is_pending = acks == -1 and end > partition.high_watermark
        return result, Waiting(partition, end) if is_pending else None

    def _prepared(
        self,
        call: Call,
        wanted: messages.Partition,
        config: LogConfig,
        checked: Checked | None,
    ) -> Prepared | None:
        rules = self._rules_of(config)
        if checked is None or checked.rules is not rules:  # they were changed meanwhile
            return prepare(
                wanted.records, produce_version=call.version, rules=rules, now_ms=self._now_ms()
            )
        if isinstance(checked.outcome, Refused):
            raise checked.outcome
        return checked.outcome

    def _when_committed(
        self,
        answer: messages.ProduceResponse,
        results: Sequence[messages.PartitionResult],
        waiting: Mapping[int, Waiting],
        wait_s: float,
    ) -> Parked:
        parked = Parked()

        def decided(codes: dict[int, ErrorCode]) -> None:
            for place, code in codes.items():
                if code is not ErrorCode.NONE:
                    results[place].error_code = code
                    results[place].base_offset = -1
            parked.resolve(answer)

        acks, until = AckWait(decided), self._loop.time() + wait_s
        for place, one in waiting.items():
            one.partition.when_committed(one.end, acks.expect(place), until)
        acks.start(self._loop, wait_s)
        return parked

    def _say_nothing(self, call: Call, results: Sequence[messages.PartitionResult]) -> None:
        """With acks 0 a closed connection is the only way to tell of an error."""
        codes = {result.error_code for result in results} - {ErrorCode.NONE}
        if codes:
            log.info("closed a producer without acks host=%s codes=%s", call.peer.host, codes)
            call.peer.close()

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


def _may_write(call: Call, topic: str) -> bool:
    """Whether a peer may write to an internal topic: what nodes say of changes, only nodes say."""
    return call.peer.is_internal if topic == AUDIT_TOPIC else call.client_id == ADMIN_CLIENT


RULES_MAX = 1000


def rules_of(config: LogConfig) -> ProduceRules:
    """What a topic's settings mean for what may be produced to it."""
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    difference = config.message_timestamp_difference_max_ms
    return ProduceRules(
        message_bytes_max=config.max_message_bytes,
        segment_bytes=config.segment_bytes,
        compression=config.compression_type,
        compression_level=levels.get(config.compression_type),
        timestamp_type=config.message_timestamp_type,
        timestamp_before_max_ms=min(config.message_timestamp_before_max_ms, difference),
        timestamp_after_max_ms=min(config.message_timestamp_after_max_ms, difference),
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

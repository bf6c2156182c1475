"""Settings of the producer, under the names of 0.7, of 0.8 and of today.

Source: docs/spec/coordinator.md §7.1. Two defaults differ from the table there: acknowledgements
from all replicas instead of none, and retries for as long as ``delivery.timeout.ms`` allows: what
is lost by default should be lost on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.client_config import ClientConfig, verify
from barnabas.protocol.records.compression.codecs import NAMES, Codec
from barnabas.protocol.settings import ConfigError, declared, parse, setting, suggestion

ALL: Final = -1
_ACKS: Final = (-1, 0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How records are gathered, sent and retried; :meth:`of` takes text under any of the names."""

    producer_type: str = setting(
        "producer.type",
        "sync",
        "async gathers records in a queue and hands batches to the event handler",
        choices=("sync", "async"),
    )
    queue_time_ms: int = setting(
        "queue.buffering.max.ms", 5_000, "async: longest time in the queue", least=0
    )
    queue_size: int = setting(
        "queue.buffering.max.messages", 10_000, "async: records the queue holds", least=1
    )
    enqueue_timeout_ms: int = setting(
        "queue.enqueue.timeout.ms", -1, "async: wait for room; 0 not at all, -1 for ever", least=-1
    )
    batch_size: int = setting(
        "batch.num.messages", 200, "async: records handed over at once", least=1
    )
    required_acks: int = setting(
        "request.required.acks", ALL, "-1 all replicas in sync, 1 the leader, 0 nobody"
    )
    retries: int | None = setting(
        "message.send.max.retries", None, "attempts after the first; null is no bound but time"
    )
    retry_backoff_ms: int = setting("retry.backoff.ms", 100, "wait before another try", least=0)
    request_timeout_ms: int = setting(
        "request.timeout.ms", 10_000, "how long a broker may wait for its replicas", least=1
    )
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms", 120_000, "bound on a record, all its retries included", least=1
    )
    enable_idempotence: bool | None = setting(
        "enable.idempotence", None, "no duplicates by retries; null: when all replicas acknowledge"
    )
    transactional_id: str | None = setting(
        "transactional.id", None, "records belong to transactions of this id; null: to none"
    )
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms",
        60_000,
        "the coordinator aborts a transaction that is open for longer",
        least=1,
    )
    in_flight_max: int = setting(
        "max.in.flight.requests.per.connection",
        5,
        "requests a broker has not answered yet",
        least=1,
        most=5,
    )
    linger_ms: int = setting("linger.ms", 0, "wait for more before a batch is sent", least=0)
    batch_bytes: int = setting("batch.bytes", 131_072, "a batch is full at this size", least=1)
    request_bytes_max: int = setting(
        "max.request.size", 1_048_576, "bound on a record and on one request", least=1
    )
    buffer_bytes: int = setting(
        "buffer.memory",
        33_554_432,
        "no more records are taken while this many bytes wait for acknowledgement",
        least=1,
    )
    compression: str = setting(
        "compression.codec", "none", "how batches are compressed", choices=sorted(NAMES)
    )
    compressed_topics: tuple[str, ...] = setting(
        "compressed.topics", (), "only these topics are compressed; none named: all"
    )
    partitioner: str = setting(
        "partitioner.class",
        "hash",
        "hash(key) % partitions as the documents have it, or murmur2 as Java producers do",
        choices=("hash", "murmur2"),
    )
    metadata_refresh_ms: int = setting(
        "topic.metadata.refresh.interval.ms", 600_000, "partitions are counted anew", least=1
    )

    def __post_init__(self) -> None:
        """Raise ConfigError for values that make no sense, alone or together."""
        verify(self)
        if self.required_acks not in _ACKS:
            raise ConfigError("request.required.acks: must be -1, 0 or 1")
        if self.batch_size > self.queue_size:
            raise ConfigError("batch.num.messages: must not exceed queue.buffering.max.messages")
        if self.enable_idempotence and self.required_acks != ALL:
            raise ConfigError("enable.idempotence: needs request.required.acks=-1")
        if self.transactional_id is not None:
            self._verify_transactional()

    def _verify_transactional(self) -> None:
        if not self.transactional_id:
            raise ConfigError("transactional.id: must not be empty")
        if not self.is_idempotent:
            raise ConfigError("transactional.id: needs idempotence and request.required.acks=-1")
        if self.producer_type != "sync":
            # Records in the queue would belong to whichever transaction is open when they leave it.
            raise ConfigError("transactional.id: needs producer.type=sync")

    @property
    def is_idempotent(self) -> bool:
        """Whether retries are kept from making duplicates."""
        if self.enable_idempotence is None:
            return self.required_acks == ALL
        return self.enable_idempotence

    def codec_for(self, topic: str) -> Codec:
        """How batches of ``topic`` are compressed."""
        if self.compressed_topics and topic not in self.compressed_topics:
            return Codec.NONE
        return NAMES[self.compression]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ProducerConfig:
        """From text values; names of the client's settings are left to :func:`client_config`.

        Raises ConfigError for unknown names and bad values.
        """
        return parse(cls, renamed(values))


ALIASES: Final = {
    "queue.time": "queue.buffering.max.ms",
    "queue.size": "queue.buffering.max.messages",
    "queue.enqueueTimeout.ms": "queue.enqueue.timeout.ms",
    "batch.size": "batch.num.messages",
    "num.retries": "message.send.max.retries",
    "max.message.size": "max.request.size",
    "acks": "request.required.acks",
    "retries": "message.send.max.retries",
    "compression.type": "compression.codec",
    "connect.timeout.ms": "socket.connection.setup.timeout.ms",
}
"""What 0.7 and today's producers call the same thing."""

_BY_NUMBER: Final = {str(codec.value): codec.name.lower() for codec in Codec}


def renamed(values: Mapping[str, Any]) -> dict[str, str]:
    """The same under our names, as text; raises ConfigError for a name nobody knows."""
    known = {**declared(ProducerConfig), **declared(ClientConfig)}
    found: dict[str, str] = {}
    for name, value in values.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        name = ALIASES.get(name, name)
        if name not in known:
            raise ConfigError(f"{name}: unknown{suggestion(name, [*known, *ALIASES])}")
        if name == "request.required.acks" and text == "all":
            text = str(ALL)
        if name == "compression.codec":
            text = _BY_NUMBER.get(text, text)
        found[name] = text
    return found


def client_config(values: Mapping[str, Any]) -> ClientConfig:
    """The settings among ``values`` that concern the connection to the cluster."""
    return parse(ClientConfig, renamed(values))

"""SyncConsumerConnector: the high-level consumer without ``await``; streams are iterators.

Source: docs/spec/coordinator.md §6.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from barnabas.client.blocking import LoopThread
from barnabas.client.consumer.consumed_records import ConsumedRecord
from barnabas.client.topology import TopicPartition

from .classic_config import ClassicConfig
from .consumer_connector import ConsumerConnector
from .kafka_stream import KafkaStream
from .topic_filter import TopicFilter


class SyncKafkaStream:
    """A :class:`KafkaStream` for one thread; a plain iterator."""

    def __init__(self, stream: KafkaStream, thread: LoopThread) -> None:
        self.stream = stream
        self._thread = thread

    @property
    def topic_partitions(self) -> frozenset[TopicPartition]:
        """The partitions that feed this stream now."""
        return self.stream.topic_partitions

    def __iter__(self) -> Self:
        """Itself."""
        return self

    def __next__(self) -> ConsumedRecord:
        """The next message; the one before counts as consumed. Raises as the stream does."""
        if self.stream.is_over:
            raise StopIteration
        record = self.stream.next_ready()
        if record is None:
            record = self._thread.run(_next_or_end(self.stream))
        if record is None:
            raise StopIteration
        return record


class SyncConsumerConnector:
    """A :class:`ConsumerConnector` whose calls wait; streams may each have a thread of theirs.

    Takes what a connector takes. Connects at once; use it in ``with``, or shut it down.
    """

    def __init__(self, config: ClassicConfig | Mapping[str, object], **options: Any) -> None:
        self._thread = LoopThread("barnabas classic consumer")
        self._connector = self._thread.begin(_started(config, options))

    @property
    def consumer_id(self) -> str:
        """Our name in the group."""
        return self._connector.consumer_id

    @property
    def owned(self) -> Mapping[TopicPartition, str]:
        """The partitions that are ours, and the thread that has each."""
        return self._connector.owned

    @property
    def problem(self) -> str | None:
        """Why we own less than we should; None while all is well."""
        return self._connector.problem

    def create_message_streams(
        self, topic_counts: Mapping[str, int]
    ) -> dict[str, list[SyncKafkaStream]]:
        """So many streams of each topic; returns when partitions are ours."""
        found = self._thread.run(self._connector.create_message_streams(topic_counts))
        return {
            topic: [SyncKafkaStream(stream, self._thread) for stream in streams]
            for topic, streams in found.items()
        }

    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, count: int = 1
    ) -> list[SyncKafkaStream]:
        """Streams of all topics that pass, those included that are created later."""
        found = self._thread.run(
            self._connector.create_message_streams_by_filter(topic_filter, count)
        )
        return [SyncKafkaStream(stream, self._thread) for stream in found]

    def commit_offsets(self, *streams: SyncKafkaStream) -> None:
        """Commit all messages consumed so far, those in hand of ``streams`` (all) included."""
        inner = [stream.stream for stream in streams]
        self._thread.run(self._connector.commit_offsets(*inner))

    def shutdown(self) -> None:
        """Commit if that is automatic, end every stream, leave the group; twice is allowed."""
        self._thread.end(self._connector.shutdown)

    def __enter__(self) -> Self:
        """The connector; it is connected already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shut down."""
        self.shutdown()


async def _started(
    config: ClassicConfig | Mapping[str, object], options: Mapping[str, Any]
) -> ConsumerConnector:
    connector = ConsumerConnector(config, **options)
    await connector.start()
    return connector


async def _next_or_end(stream: KafkaStream) -> ConsumedRecord | None:
    """StopAsyncIteration cannot leave a future."""
    return await anext(stream, None)

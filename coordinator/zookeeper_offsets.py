"""Version 0 of OffsetCommit and OffsetFetch, which live in ZooKeeper and ask no coordinator.

Source: docs/spec/coordinator.md §1.6, §1.7 and §11 point 2. Any node answers; nothing is checked
but the partitions. When ZooKeeper fails so does the request: the offsets topic is never a
substitute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import offset_commit, offset_fetch
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

from .config import CoordinatorConfig
from .cooperative import CooperativeScheduler, Steps, Turn
from .group import Respond
from .offsets import TopicPartition, is_metadata_too_long
from .ports import Topics, ZooKeeperOffsets

log = logging.getLogger(__name__)


class ZooKeeperOffsetsHandler:
    """Serves the two oldest versions; each request is a task of :meth:`run`."""

    def __init__(
        self,
        store: ZooKeeperOffsets | None,
        topics: Topics,
        config: CoordinatorConfig,
        scheduler: CooperativeScheduler,
    ) -> None:
        self._scheduler = scheduler
        self._store = store
        self._topics = topics
        self._units_max = config.metadata_units_max
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Own the tasks of the requests until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None

    def commit(self, request: OffsetCommitRequest, respond: Respond) -> None:
        """Store what passes the checks; one code for each partition."""
        self._scheduler.drive(self._commit(request, respond))

    def _commit(self, request: OffsetCommitRequest, respond: Respond) -> Steps[None]:
        turn = Turn()
        codes: dict[TopicPartition, ErrorCode] = {}
        offsets: dict[TopicPartition, int] = {}
        for topic in request.topics:
            for asked in topic.partitions:
                partition = (topic.name, asked.partition_index)
                metadata = asked.committed_metadata or ""
                if not self._is_known(partition):
                    codes[partition] = self._topics.missing_partition_error()
                elif is_metadata_too_long(metadata, self._units_max):
                    codes[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    offsets[partition] = asked.committed_offset
                if turn.is_over():
                    yield

        def on_stored(stored: Mapping[TopicPartition, ErrorCode]) -> None:
            codes.update(stored)
            self._scheduler.drive(_commit_response(request, codes, respond))

        async def store() -> Mapping[TopicPartition, ErrorCode]:
            assert self._store is not None
            return await self._store.commit(request.group_id, offsets)

        def failed(code: ErrorCode) -> Mapping[TopicPartition, ErrorCode]:
            return dict.fromkeys(offsets, code)

        if offsets:
            self._start(store, failed, on_stored)
        else:
            on_stored({})

    def fetch(self, request: OffsetFetchRequest, respond: Respond) -> None:
        """Read the numbers; code 3 for a partition that nobody knows or committed."""
        self._scheduler.drive(self._fetch(request, respond))

    def _fetch(self, request: OffsetFetchRequest, respond: Respond) -> Steps[None]:
        turn = Turn()
        wanted: dict[str, dict[int, None]] = {}
        known: dict[TopicPartition, None] = {}
        missing = self._topics.missing_partition_error()
        for topic in request.topics or ():
            indexes_of_topic = wanted.setdefault(topic.name, {})
            for index in topic.partition_indexes:
                indexes_of_topic[index] = None
                if self._is_known((topic.name, index)):
                    known[topic.name, index] = None
                if turn.is_over():
                    yield
            if turn.is_over():
                yield

        def on_read(found: Mapping[TopicPartition, int | ErrorCode]) -> None:
            self._scheduler.drive(_fetch_response(wanted, found, missing, respond))

        async def read() -> Mapping[TopicPartition, int | ErrorCode]:
            assert self._store is not None
            return await self._store.fetch(request.group_id, list(known))

        def failed(code: ErrorCode) -> Mapping[TopicPartition, int | ErrorCode]:
            return dict.fromkeys(known, code)

        if known:
            self._start(read, failed, on_read)
        else:
            on_read({})

    def _is_known(self, partition: TopicPartition) -> bool:
        return 0 <= partition[1] < (self._topics.partition_count(partition[0]) or 0)

    def _start(
        self,
        work: Callable[[], Coroutine[Any, Any, Any]],
        failed: Callable[[ErrorCode], Any],
        respond: Callable[[Any], None],
    ) -> None:
        if self._store is None or self._tasks is None:
            respond(failed(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            self._tasks.create_task(_answer(work, failed, respond))


async def _answer(
    work: Callable[[], Coroutine[Any, Any, Any]],
    failed: Callable[[ErrorCode], Any],
    respond: Callable[[Any], None],
) -> None:
    try:
        response = await work()
    except Exception:  # the port answers with codes; this is a bug, and one request's only
        log.exception("offsets in zookeeper failed")
        response = failed(ErrorCode.UNKNOWN_SERVER_ERROR)
    respond(response)


def _commit_response(
    request: OffsetCommitRequest, codes: Mapping[TopicPartition, ErrorCode], respond: Respond
) -> Steps[None]:
    unknown, turn = ErrorCode.UNKNOWN_SERVER_ERROR, Turn()
    topics = []
    for topic in request.topics:
        results: list[offset_commit.PartitionResult] = []
        for asked in topic.partitions:
            index = asked.partition_index
            code = codes.get((topic.name, index), unknown)
            results.append(offset_commit.PartitionResult(partition_index=index, error_code=code))
            if turn.is_over():
                yield
        topics.append(offset_commit.TopicResult(name=topic.name, partitions=results))
    respond(OffsetCommitResponse(topics=topics))


def _fetch_response(
    wanted: Mapping[str, Mapping[int, None]],
    found: Mapping[TopicPartition, int | ErrorCode],
    missing: ErrorCode,
    respond: Respond,
) -> Steps[None]:
    turn = Turn()
    topics = []
    for name, indexes in wanted.items():
        results: list[offset_fetch.PartitionResult] = []
        for index in indexes:
            results.append(_fetched(index, found.get((name, index), missing)))
            if turn.is_over():
                yield
        topics.append(offset_fetch.TopicResult(name=name, partitions=results))
    respond(OffsetFetchResponse(topics=topics))


def _fetched(index: int, found: int | ErrorCode) -> offset_fetch.PartitionResult:
    is_code = isinstance(found, ErrorCode)
    return offset_fetch.PartitionResult(
        partition_index=index,
        committed_offset=-1 if is_code else found,
        metadata="",
        error_code=found if is_code else ErrorCode.NONE,
    )

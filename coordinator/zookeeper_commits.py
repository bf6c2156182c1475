"""Version 0 of OffsetCommit and OffsetFetch, which live in ZooKeeper and ask no coordinator.

Source: coordinator.md sections 1.6, 1.7 and 11.4. Any node answers; nothing is checked but the
partitions. When ZooKeeper fails so does the request: the offsets topic is never a substitute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import offset_commit, offset_fetch
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

from .config import CoordinatorConfig
from .group import Reply
from .metadata_limit import is_too_long
from .offsets import TopicPartition
from .ports import Topics, ZooKeeperOffsets
from .repeated_topics import merged

log = logging.getLogger(__name__)


class ZooKeeperCommits:
    """Serves the two oldest versions; each request is a task of :meth:`run`."""

    def __init__(
        self, store: ZooKeeperOffsets | None, topics: Topics, config: CoordinatorConfig
    ) -> None:
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

    def commit(self, request: OffsetCommitRequest, reply: Reply) -> None:
        """Store what passes the checks; one code for each partition."""
        codes: dict[TopicPartition, ErrorCode] = {}
        offsets: dict[TopicPartition, int] = {}
        for topic in request.topics:
            for asked in topic.partitions:
                partition = (topic.name, asked.partition_index)
                metadata = asked.committed_metadata or ""
                if not self._is_known(partition):
                    codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif is_too_long(metadata, self._units_max):
                    codes[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    offsets[partition] = asked.committed_offset

        def answer(stored: dict[TopicPartition, ErrorCode]) -> OffsetCommitResponse:
            return _commit_response(request, {**codes, **stored})

        async def store() -> OffsetCommitResponse:
            assert self._store is not None
            return answer(dict(await self._store.commit(request.group_id, offsets)))

        def failed(code: ErrorCode) -> OffsetCommitResponse:
            return answer(dict.fromkeys(offsets, code))

        if offsets:
            self._start(store, failed, reply)
        else:
            reply(answer({}))

    def fetch(self, request: OffsetFetchRequest, reply: Reply) -> None:
        """Read the numbers; code 3 for a partition that nobody knows or committed."""
        partitions = dict.fromkeys(
            (topic.name, index)
            for topic in request.topics or ()
            for index in topic.partition_indexes
        )
        known = [partition for partition in partitions if self._is_known(partition)]

        async def read() -> OffsetFetchResponse:
            assert self._store is not None
            found = await self._store.fetch(request.group_id, known)
            return _fetch_response(request, dict(found))

        def failed(code: ErrorCode) -> OffsetFetchResponse:
            return _fetch_response(request, dict.fromkeys(known, code))

        if known:
            self._start(read, failed, reply)
        else:
            reply(_fetch_response(request, {}))

    def _is_known(self, partition: TopicPartition) -> bool:
        return 0 <= partition[1] < (self._topics.partition_count(partition[0]) or 0)

    def _start(
        self,
        work: Callable[[], Coroutine[Any, Any, Any]],
        failed: Callable[[ErrorCode], Any],
        reply: Reply,
    ) -> None:
        if self._store is None or self._tasks is None:
            reply(failed(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            self._tasks.create_task(_answer(work, failed, reply))


async def _answer(
    work: Callable[[], Coroutine[Any, Any, Any]],
    failed: Callable[[ErrorCode], Any],
    reply: Reply,
) -> None:
    try:
        response = await work()
    except Exception:  # the port answers with codes; this is a bug, and one request's only
        log.exception("offsets in zookeeper failed")
        response = failed(ErrorCode.UNKNOWN_SERVER_ERROR)
    reply(response)


def _commit_response(
    request: OffsetCommitRequest, codes: dict[TopicPartition, ErrorCode]
) -> OffsetCommitResponse:
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    return OffsetCommitResponse(
        topics=[
            offset_commit.TopicResult(
                name=topic.name,
                partitions=[
                    offset_commit.PartitionResult(
                        partition_index=asked.partition_index,
                        error_code=codes.get((topic.name, asked.partition_index), unknown),
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _fetch_response(
    request: OffsetFetchRequest, found: dict[TopicPartition, int | ErrorCode]
) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        topics=[
            offset_fetch.TopicResult(
                name=topic.name,
                partitions=[
                    _fetched(index, found.get((topic.name, index)))
                    for index in dict.fromkeys(topic.partition_indexes)
                ],
            )
            for topic in merged(request.topics or ())
        ]
    )


def _fetched(index: int, found: int | ErrorCode | None) -> offset_fetch.PartitionResult:
    if found is None:
        found = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_code = isinstance(found, ErrorCode)
    return offset_fetch.PartitionResult(
        partition_index=index,
        committed_offset=-1 if is_code else found,
        metadata="",
        error_code=found if is_code else ErrorCode.NONE,
    )

"""DescribeLogDirs: what the log directories of this node hold.

Source: docs/spec/protocol.md §2; Kafka 3.9 ReplicaManager; KIP-113, KIP-827 (sizes of the disk).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.cooperative import in_slices
from barnabas.broker.storage.files import Files, StorageError
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_directory import LogDirectory
from barnabas.broker.storage.log_manager import LogManager
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_log_dirs as messages

from .call import Call, Handler
from .cooperative import Turn

UNKNOWN_BYTES = -1


class DescribeLogDirsHandler:
    """Answers for this node alone."""

    def __init__(self, logs: LogManager, replicas: ReplicaManager, files: Files) -> None:
        self._logs = logs
        self._replicas = replicas
        self._files = files

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.DESCRIBE_LOG_DIRS: self.describe}

    async def describe(self, call: Call) -> messages.DescribeLogDirsResponse:
        """Each directory with the logs asked for; a failed one has a code and no logs.

        In slices: a node may have thousands of logs, each of many segments.
        """
        request: messages.DescribeLogDirsRequest = call.request
        named: set[tuple[str, int]] | None = None
        if request.topics is not None:
            named, turn = set(), Turn()
            for topic in request.topics:
                for index in topic.partitions:
                    named.add((topic.topic, index))
                    await turn.step()
        return messages.DescribeLogDirsResponse(results=await in_slices(self._results(named)))

    def _results(
        self, named: set[tuple[str, int]] | None
    ) -> Generator[None, None, list[messages.Result]]:
        results = []
        for directory in self._logs.directories:
            result = yield from self._result(directory, named)
            results.append(result)
        return results

    def _result(
        self, directory: LogDirectory, named: set[tuple[str, int]] | None
    ) -> Generator[None, None, messages.Result]:
        path = str(directory.path.absolute())
        if not directory.is_online:
            code = ErrorCode.KAFKA_STORAGE_ERROR
            return messages.Result(error_code=code, log_dir=path, topics=[])
        topics: dict[str, list[messages.PartitionResult]] = {}
        for log in self._logs.logs_in(directory):
            if named is None or (log.topic, log.partition) in named:
                topics.setdefault(log.topic, []).append(self._partition(log))
                yield
        total, usable = self._disk(directory)
        return messages.Result(
            error_code=ErrorCode.NONE,
            log_dir=path,
            topics=[
                messages.TopicResult(name=name, partitions=partitions)
                for name, partitions in sorted(topics.items())
            ],
            total_bytes=total,
            usable_bytes=usable,
        )

    def _partition(self, log: Log) -> messages.PartitionResult:
        """A replica that knows of more than it has lags by that."""
        hosted = self._replicas.get(log.topic, log.partition)
        mark = log.end_offset if hosted is None else hosted.high_watermark
        return messages.PartitionResult(
            partition_index=log.partition,
            partition_size=log.size,
            offset_lag=max(0, mark - log.end_offset),
            is_future_key=False,
        )

    def _disk(self, directory: LogDirectory) -> tuple[int, int]:
        """Bytes of the file system, and how many of them are free for us."""
        try:
            return self._files.disk_bytes(directory.path)
        except StorageError:
            return UNKNOWN_BYTES, UNKNOWN_BYTES

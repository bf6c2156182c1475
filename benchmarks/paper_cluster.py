"""A cluster on paper: answers from arrays, by our own codecs, for a console that only looks.

Three nodes of 10,000 topics of ten partitions, and 10,000 groups of ten offsets. Run as
``python -m benchmarks.paper_cluster``: prints its address. Nothing is kept and nothing changes but
the ends of logs, which grow by the clock. Source: docs/spec/console.md §5 (load).
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from barnabas.protocol import api
from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.frame import parse_request_header, response_prefix
from barnabas.protocol.hashing import group_partition
from barnabas.protocol.messages import (
    api_versions,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    fetch,
    find_coordinator,
    list_groups,
    list_offsets,
    metadata,
    offset_fetch,
)
from barnabas.protocol.records.builder import build_batch

TOPICS: Final = 10_000
PARTITIONS: Final = 10
GROUPS: Final = 10_000
OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 50
NODES: Final = (1, 2, 3)
_HOST: Final = "127.0.0.1"
_COMMITTED: Final = 1_000
_BYTES: Final = 1 << 20
_DATA: Final = "/data"


def topic_name(number: int) -> str:
    """As it is listed."""
    return f"topic-{number:05}"


def group_name(number: int) -> str:
    """Reads the topic of the same number."""
    return f"group-{number:05}"


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _topic(name: str, partitions: int) -> metadata.TopicResult:
    first = 0 if name == OFFSETS_TOPIC else _number(name)
    return metadata.TopicResult(
        error_code=0, name=name, topic_id=bytes(16), is_internal=name == OFFSETS_TOPIC,
        partitions=[
            metadata.Partition(
                error_code=0, partition_index=index, leader_id=NODES[(first + index) % 3],
                leader_epoch=1, replica_nodes=NODES, isr_nodes=NODES, offline_replicas=(),
            )
            for index in range(partitions)
        ],
    )  # fmt: skip


class PaperCluster:
    """All three nodes; each is a port of this process."""

    def __init__(
        self, topics: int = TOPICS, groups: int = GROUPS, clock: Callable[[], float] = time.time
    ) -> None:
        """A group reads the topic of its number, those beyond the last topic the first ones."""
        self._topic_count = topics
        self._clock = clock
        self.ports: dict[int, int] = {}
        self._servers: list[asyncio.Server] = []
        self._batch = bytes(
            build_batch([(b"key", bytes(100))], timestamp_ms=time.time_ns() // 1_000_000)
        )
        self.asked: dict[ApiKey, int] = {}
        known = [_topic(topic_name(number), PARTITIONS) for number in range(topics)]
        known.append(_topic(OFFSETS_TOPIC, OFFSETS_PARTITIONS))
        self._topics = {topic.name: topic for topic in known}
        self._listed: dict[int, list[list_groups.Group]] = {node: [] for node in NODES}
        for number in range(groups):
            name = group_name(number)
            listed = list_groups.Group(
                group_id=name, protocol_type="consumer", group_state="Empty", group_type="classic"
            )
            self._listed[self._coordinator(name)].append(listed)
        self._encoded: dict[tuple[ApiKey, int, int], bytes] = {}
        self._answers: Mapping[ApiKey, tuple[int, Callable[[int, Any], Any]]] = {
            ApiKey.METADATA: (9, self._metadata),
            ApiKey.DESCRIBE_CLUSTER: (0, self._cluster),
            ApiKey.LIST_GROUPS: (4, self._groups),
            ApiKey.DESCRIBE_GROUPS: (5, self._describe),
            ApiKey.FIND_COORDINATOR: (4, self._find),
            ApiKey.OFFSET_FETCH: (8, self._committed),
            ApiKey.LIST_OFFSETS: (7, self._offsets),
            ApiKey.DESCRIBE_LOG_DIRS: (4, self._directories),
            ApiKey.DESCRIBE_CONFIGS: (4, self._configs),
            ApiKey.FETCH: (11, self._fetch),
        }

    def _coordinator(self, group: str) -> int:
        return NODES[group_partition(group, OFFSETS_PARTITIONS) % 3]

    async def start(self) -> None:
        """Listen; the address of one node is enough to find the others."""
        for node in NODES:
            server = await asyncio.start_server(partial(self._serve, node), _HOST, 0)
            self.ports[node] = server.sockets[0].getsockname()[1]
            self._servers.append(server)

    @property
    def bootstrap(self) -> str:
        """Where a client asks first."""
        return f"{_HOST}:{self.ports[NODES[0]]}"

    def close(self) -> None:
        """Listen no more."""
        for server in self._servers:
            server.close()

    async def _serve(
        self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                writer.write(self._answered(node, await reader.readexactly(size)))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answered(self, node: int, frame: bytes) -> bytes:
        header, start = parse_request_header(frame)
        key, version = ApiKey(header.key), header.version
        self.asked[key] = self.asked.get(key, 0) + 1
        if key is ApiKey.API_VERSIONS:
            body = self._versions(version)
        else:
            spec = api.lookup(key)
            assert spec is not None
            request = decode(spec.request, version, frame, start)
            kept = (key, version, node)
            is_kept = key is ApiKey.METADATA and request.topics is None
            body = self._encoded.get(kept, b"") if is_kept else b""
            if not body:
                body = encode(self._answers[key][1](node, request), version)
            if is_kept:
                self._encoded[kept] = body
        tags = api.response_header_version(header.key, version)
        return bytes(response_prefix(header.correlation_id, tags, len(body))) + body

    def _versions(self, version: int) -> bytes:
        is_known = version <= 3
        keys = [
            api_versions.ApiVersion(api_key=key, min_version=0, max_version=highest)
            for key, (highest, _) in self._answers.items()
        ]
        keys.append(
            api_versions.ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=3)
        )
        code = ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_VERSION
        answer = api_versions.ApiVersionsResponse(error_code=code, api_keys=keys)
        return encode(answer, version if is_known else 0)

    def _metadata(self, node: int, request: metadata.MetadataRequest) -> metadata.MetadataResponse:
        wanted = self._topics if request.topics is None else [one.name for one in request.topics]
        return metadata.MetadataResponse(
            brokers=[
                metadata.Broker(node_id=one, host=_HOST, port=port)
                for one, port in self.ports.items()
            ],
            cluster_id="on-paper", controller_id=1,
            topics=[
                self._topics.get(name)
                or metadata.TopicResult(
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, topic_id=bytes(16),
                    partitions=(),
                )
                for name in wanted
            ],
        )  # fmt: skip

    def _cluster(self, node: int, request: Any) -> describe_cluster.DescribeClusterResponse:
        brokers = [
            describe_cluster.Broker(broker_id=one, host=_HOST, port=port)
            for one, port in self.ports.items()
        ]
        return describe_cluster.DescribeClusterResponse(
            error_code=0, cluster_id="on-paper", controller_id=1, brokers=brokers
        )

    def _groups(self, node: int, request: Any) -> list_groups.ListGroupsResponse:
        return list_groups.ListGroupsResponse(error_code=0, groups=self._listed[node])

    def _describe(
        self, node: int, request: describe_groups.DescribeGroupsRequest
    ) -> describe_groups.DescribeGroupsResponse:
        return describe_groups.DescribeGroupsResponse(
            groups=[
                describe_groups.Group(
                    error_code=0, group_id=name, group_state="Empty", protocol_type="consumer",
                    protocol_data="", members=(),
                )
                for name in request.groups
            ]
        )  # fmt: skip

    def _find(
        self, node: int, request: find_coordinator.FindCoordinatorRequest
    ) -> find_coordinator.FindCoordinatorResponse:
        keys = request.coordinator_keys or [request.key]
        places = [(key, self._coordinator(key)) for key in keys]
        found = places[0][1]
        return find_coordinator.FindCoordinatorResponse(
            error_code=0, error_message=None, node_id=found, host=_HOST, port=self.ports[found],
            coordinators=[
                find_coordinator.Coordinator(
                    key=key, node_id=place, host=_HOST, port=self.ports[place], error_code=0,
                    error_message=None,
                )
                for key, place in places
            ],
        )  # fmt: skip

    def _committed(
        self, node: int, request: offset_fetch.OffsetFetchRequest
    ) -> offset_fetch.OffsetFetchResponse:
        return offset_fetch.OffsetFetchResponse(
            topics=self._offsets_of(request.group_id) if request.group_id else (), error_code=0,
            groups=[
                offset_fetch.GroupResult(
                    group_id=group.group_id, topics=self._offsets_of(group.group_id), error_code=0
                )
                for group in request.groups
            ],
        )  # fmt: skip

    def _offsets_of(self, group: str) -> list[offset_fetch.TopicResult]:
        parts = [
            offset_fetch.PartitionResult(
                partition_index=index, committed_offset=_COMMITTED, metadata="", error_code=0
            )
            for index in range(PARTITIONS)
        ]
        topic = topic_name(_number(group) % self._topic_count)
        return [offset_fetch.TopicResult(name=topic, partitions=parts)]

    def _offsets(
        self, node: int, request: list_offsets.ListOffsetsRequest
    ) -> list_offsets.ListOffsetsResponse:
        end = _COMMITTED + int(self._clock()) % 1_000

        def offset(topic: str, timestamp: int) -> int:
            return 0 if topic == OFFSETS_TOPIC or timestamp == -2 else end

        return list_offsets.ListOffsetsResponse(
            topics=[
                list_offsets.TopicResult(
                    name=topic.name,
                    partitions=[
                        list_offsets.PartitionResult(
                            partition_index=part.partition_index, error_code=0,
                            offset=offset(topic.name, part.timestamp),
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )  # fmt: skip

    def _directories(
        self, node: int, request: describe_log_dirs.DescribeLogDirsRequest
    ) -> describe_log_dirs.DescribeLogDirsResponse:
        topics = [
            describe_log_dirs.TopicResult(
                name=topic.topic,
                partitions=[
                    describe_log_dirs.PartitionResult(
                        partition_index=index, partition_size=_BYTES, offset_lag=0,
                        is_future_key=False,
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topics or ()
        ]  # fmt: skip
        result = describe_log_dirs.Result(
            error_code=0, log_dir=_DATA, topics=topics, total_bytes=1 << 40, usable_bytes=1 << 39
        )
        return describe_log_dirs.DescribeLogDirsResponse(error_code=0, results=[result])

    def _configs(
        self, node: int, request: describe_configs.DescribeConfigsRequest
    ) -> describe_configs.DescribeConfigsResponse:
        setting = describe_configs.Config(
            name="retention.ms", value="604800000", read_only=False, config_source=5,
            is_sensitive=False, synonyms=(), config_type=5, documentation=None,
        )  # fmt: skip
        return describe_configs.DescribeConfigsResponse(
            results=[
                describe_configs.Result(
                    error_code=0, error_message=None, resource_type=one.resource_type,
                    resource_name=one.resource_name,
                    configs=[setting] if one.resource_type == 2 else (),
                )
                for one in request.resources
            ]
        )  # fmt: skip

    def _fetch(self, node: int, request: fetch.FetchRequest) -> fetch.FetchResponse:
        return fetch.FetchResponse(
            error_code=0,
            responses=[
                fetch.TopicResult(
                    topic=topic.topic,
                    partitions=[
                        fetch.PartitionResult(
                            partition_index=part.partition, error_code=0, high_watermark=0,
                            last_stable_offset=0, log_start_offset=0, aborted_transactions=None,
                            records=self._record(topic.topic, part.fetch_offset),
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )  # fmt: skip

    def _record(self, topic: str, offset: int) -> bytes | None:
        """One record, so old as the cluster; the offset is no part of what its checksum is of."""
        if topic == OFFSETS_TOPIC:
            return None
        return offset.to_bytes(8, "big") + self._batch[8:]


async def main() -> None:
    """Print the address and answer until killed."""
    parser = argparse.ArgumentParser(description="a cluster that answers from arrays")
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--groups", type=int, default=GROUPS)
    chosen = parser.parse_args()
    cluster = PaperCluster(chosen.topics, chosen.groups)
    await cluster.start()
    print(cluster.bootstrap, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())

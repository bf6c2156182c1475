"""Two requests in one write on one connection, and what their answers show of each other.

Every request here is of one class of docs/wire.md, and its answer is told in the few numbers that
depend on what was served before it. What Apache Kafka 3.9 answered to every pair stands in
tests/golden/connection-order.json; ``python -m tests.harness.request_pairs`` asks it again.
"""

from __future__ import annotations

import itertools
import json
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas.protocol import api
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.frame import parse_response_header, request_frame
from barnabas.protocol.messages import (
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sync_group,
)
from tests.harness.raw_batches import sequenced_batch
from tests.harness.raw_connection import Address, RawConnection
from tests.harness.waiting import eventually

GOLDEN: Final = Path(__file__).parent.parent / "golden" / "connection-order.json"
NO_PRODUCER: Final = -1
TOPIC_RESOURCE: Final = 2
SET: Final = 0
PATIENCE_MS: Final = 60_000
FETCH_WAIT_MS: Final = 150
PROTOCOLS: Final = (join_group.Protocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0"),)
_NUMBERS: Final = itertools.count(1)

Shown = dict[str, Any]


@dataclass
class PairContext:
    """What one pair of requests is about, prepared for it alone."""

    link: RawConnection
    suffix: str = field(default_factory=lambda: str(next(_NUMBERS)))
    member_id: str = ""
    generation: int = 0

    @property
    def topic(self) -> str:
        """One partition with three records."""
        return f"ordered-{self.suffix}"

    @property
    def new_topic(self) -> str:
        """Nobody has created it yet."""
        return f"new-{self.suffix}"

    @property
    def group(self) -> str:
        """Without members; 5 is committed for the topic."""
        return f"offsets-{self.suffix}"

    @property
    def team(self) -> str:
        """A group of one member."""
        return f"team-{self.suffix}"

    def ask(self, *several: tuple[Any, int]) -> list[Any]:
        """Send requests in one write; their answers."""
        frames, specs = [], []
        for place, (message, version) in enumerate(several):
            spec = api.spec_of(type(message))
            specs.append((spec, version))
            body = encode(message, version)
            frames.append(request_frame(spec.key, version, place, "order", body))
        self.link.send(b"".join(frames))
        answers = []
        for place, (spec, version) in enumerate(specs):
            frame = self.link.receive()
            header_version = api.response_header_version(spec.key, version)
            number, start = parse_response_header(frame, header_version)
            assert number == place, "answers leave in the order of the requests"
            answers.append(decode(spec.response, version, frame, start))
        return answers

    def prepare(self) -> None:
        """Create the topic, its records, the committed offset and the member."""
        (created,) = self.ask(create(self.topic))
        assert created.topics[0].error_code == 0
        eventually(self._is_led, what=f"{self.topic} has a leader")
        eventually(self._has_coordinators, what="the groups have their coordinators")
        for _ in range(3):
            assert (
                REQUESTS["Produce"].shown(self.ask(REQUESTS["Produce"].made(self))[0])["code"] == 0
            )
        (committed,) = self.ask(_commit(self, 5))
        assert committed.topics[0].partitions[0].error_code == 0
        (unnamed,) = self.ask(_join(self, version=5))
        self.member_id = unnamed.member_id
        (joined,) = self.ask(_join(self, version=5))
        assert joined.error_code == 0
        self.generation = joined.generation_id
        (synced,) = self.ask(REQUESTS["SyncGroup"].made(self))
        assert synced.error_code == 0

    def _is_led(self) -> bool:
        (answer,) = self.ask((_metadata(self.topic), 8))
        return not answer.topics[0].error_code and bool(answer.topics[0].partitions)

    def _has_coordinators(self) -> bool:
        codes = []
        for group in (self.group, self.team):
            self.ask((find_coordinator.FindCoordinatorRequest(key=group), 1))  # creates the topic
            (found,) = self.ask((offset_fetch.OffsetFetchRequest(group_id=group, topics=[]), 5))
            codes.append(found.error_code)
        request, version = REQUESTS["InitProducerId"].made(self)
        (found,) = self.ask((request, version))  # the first one waits for a block of ids
        return not any(codes) and not found.error_code


@dataclass(frozen=True)
class Request:
    """One request of a class, and what of its answer is compared."""

    made: Callable[[PairContext], tuple[Any, int]]
    shown: Callable[[Any], Shown]


def create(topic: str) -> tuple[Any, int]:
    """CreateTopics for one partition."""
    wanted = create_topics.Topic(name=topic, num_partitions=1, replication_factor=1)
    return create_topics.CreateTopicsRequest(topics=[wanted], timeout_ms=PATIENCE_MS), 4


def _metadata(topic: str) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(
        topics=[metadata.Topic(name=topic)], allow_auto_topic_creation=False
    )


def _commit(context: PairContext, offset: int) -> tuple[Any, int]:
    partition = offset_commit.Partition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = offset_commit.Topic(name=context.topic, partitions=[partition])
    return offset_commit.OffsetCommitRequest(group_id=context.group, topics=[topic]), 6


def _join(context: PairContext, version: int) -> tuple[Any, int]:
    request = join_group.JoinGroupRequest(
        group_id=context.team,
        session_timeout_ms=PATIENCE_MS,
        rebalance_timeout_ms=PATIENCE_MS,
        member_id=context.member_id,
        protocol_type="consumer",
        protocols=PROTOCOLS,
    )
    return request, version


def _batch() -> bytes:
    """One record of nobody's in particular."""
    return sequenced_batch([b"one"], NO_PRODUCER, -1)


def _produce(context: PairContext) -> tuple[Any, int]:
    data = produce.Topic(
        name=context.topic, partition_data=[produce.Partition(index=0, records=_batch())]
    )
    return produce.ProduceRequest(acks=-1, timeout_ms=PATIENCE_MS, topic_data=[data]), 7


def _fetch(context: PairContext) -> tuple[Any, int]:
    wanted = fetch.Partition(partition=0, fetch_offset=3, partition_max_bytes=1 << 20)
    request = fetch.FetchRequest(
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[fetch.Topic(topic=context.topic, partitions=[wanted])],
    )
    return request, 11


def _offset_fetch(context: PairContext) -> tuple[Any, int]:
    topic = offset_fetch.Topic(name=context.topic, partition_indexes=[0])
    return offset_fetch.OffsetFetchRequest(group_id=context.group, topics=[topic]), 5


def _sync(context: PairContext) -> tuple[Any, int]:
    chosen = sync_group.Assignment(member_id=context.member_id, assignment=b"all")
    request = sync_group.SyncGroupRequest(
        group_id=context.team,
        generation_id=context.generation,
        member_id=context.member_id,
        assignments=[chosen],
    )
    return request, 3


def _list_offsets(context: PairContext) -> tuple[Any, int]:
    earliest = list_offsets.Partition(partition_index=0, timestamp=-2)
    topic = list_offsets.Topic(name=context.topic, partitions=[earliest])
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic]), 4


def _delete_records(context: PairContext) -> tuple[Any, int]:
    upto = delete_records.Partition(partition_index=0, offset=2)
    topic = delete_records.Topic(name=context.topic, partitions=[upto])
    return delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=PATIENCE_MS), 1


def _create_partitions(context: PairContext) -> tuple[Any, int]:
    topic = create_partitions.Topic(name=context.topic, count=3, assignments=None)
    return create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=PATIENCE_MS), 1


def _alter_configs(context: PairContext) -> tuple[Any, int]:
    changed = incremental_alter_configs.Config(
        name="retention.ms", config_operation=SET, value="7654321"
    )
    resource = incremental_alter_configs.Resource(
        resource_type=TOPIC_RESOURCE, resource_name=context.topic, configs=[changed]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource]), 0


def _describe_configs(context: PairContext) -> tuple[Any, int]:
    resource = describe_configs.Resource(
        resource_type=TOPIC_RESOURCE,
        resource_name=context.topic,
        configuration_keys=["retention.ms"],
    )
    return describe_configs.DescribeConfigsRequest(resources=[resource]), 2


def _offset_delete(context: PairContext) -> tuple[Any, int]:
    partition = offset_delete.Partition(partition_index=0)
    topic = offset_delete.Topic(name=context.topic, partitions=[partition])
    return offset_delete.OffsetDeleteRequest(group_id=context.group, topics=[topic]), 0


def _of_one(answer: Any) -> Any:
    """The only partition of the only topic."""
    return answer.topics[0].partitions[0]


def _offset(answer: Any) -> Shown:
    one = _of_one(answer)
    return {"code": one.error_code, "offset": one.committed_offset}


def _fetched(answer: Any) -> Shown:
    one = answer.responses[0].partitions[0]
    return {
        "code": one.error_code,
        "high watermark": one.high_watermark,
        "records": _record_count(bytes(one.records or b"")),
    }


def _record_count(data: bytes) -> int:
    count = position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position + 8)
        count += struct.unpack_from(">i", data, position + 57)[0]
        position += 12 + size
    return count


def _code(answer: Any) -> Shown:
    return {"code": answer.error_code}


REQUESTS: Final[dict[str, Request]] = {
    "Produce": Request(
        _produce,
        lambda answer: {
            "code": answer.responses[0].partition_responses[0].error_code,
            "offset": answer.responses[0].partition_responses[0].base_offset,
        },
    ),
    "Fetch": Request(_fetch, _fetched),
    "OffsetCommit": Request(
        lambda context: _commit(context, 9), lambda answer: {"code": _of_one(answer).error_code}
    ),
    "OffsetFetch": Request(_offset_fetch, _offset),
    "Heartbeat": Request(
        lambda context: (
            heartbeat.HeartbeatRequest(
                group_id=context.team, generation_id=context.generation, member_id=context.member_id
            ),
            3,
        ),
        _code,
    ),
    "JoinGroup": Request(
        lambda context: _join(context, version=5),
        lambda answer: {"code": answer.error_code, "generation": answer.generation_id},
    ),
    "SyncGroup": Request(
        _sync,
        lambda answer: {"code": answer.error_code, "assignment": bytes(answer.assignment).decode()},
    ),
    "LeaveGroup": Request(
        lambda context: (
            leave_group.LeaveGroupRequest(group_id=context.team, member_id=context.member_id),
            2,
        ),
        _code,
    ),
    "Metadata": Request(
        lambda context: (_metadata(context.new_topic), 8),
        lambda answer: {
            "code": answer.topics[0].error_code,
            "partitions": len(answer.topics[0].partitions),
        },
    ),
    "Metadata of what is there": Request(
        lambda context: (_metadata(context.topic), 8),
        lambda answer: {
            "code": answer.topics[0].error_code,
            "partitions": len(answer.topics[0].partitions),
        },
    ),
    "ListOffsets": Request(
        _list_offsets,
        lambda answer: {"code": _of_one(answer).error_code, "offset": _of_one(answer).offset},
    ),
    "DescribeGroups": Request(
        lambda context: (describe_groups.DescribeGroupsRequest(groups=[context.team]), 2),
        lambda answer: {
            "state": answer.groups[0].group_state,
            "members": len(answer.groups[0].members),
        },
    ),
    "DescribeConfigs": Request(
        _describe_configs,
        lambda answer: {
            "code": answer.results[0].error_code,
            "values": [one.value for one in answer.results[0].configs],
        },
    ),
    "CreateTopics": Request(
        lambda context: create(context.new_topic),
        lambda answer: {"code": answer.topics[0].error_code},
    ),
    "DeleteTopics": Request(
        lambda context: (
            delete_topics.DeleteTopicsRequest(topic_names=[context.topic], timeout_ms=PATIENCE_MS),
            3,
        ),
        lambda answer: {"code": answer.responses[0].error_code},
    ),
    "DeleteRecords": Request(
        _delete_records,
        lambda answer: {
            "code": _of_one(answer).error_code,
            "offset": _of_one(answer).low_watermark,
        },
    ),
    "CreatePartitions": Request(
        _create_partitions, lambda answer: {"code": answer.results[0].error_code}
    ),
    "IncrementalAlterConfigs": Request(
        _alter_configs, lambda answer: {"code": answer.responses[0].error_code}
    ),
    "OffsetDelete": Request(
        _offset_delete,
        lambda answer: {
            "code": answer.error_code,
            "codes": [one.error_code for topic in answer.topics for one in topic.partitions],
        },
    ),
    "DeleteGroups": Request(
        lambda context: (delete_groups.DeleteGroupsRequest(groups_names=[context.group]), 1),
        lambda answer: {"code": answer.results[0].error_code},
    ),
    "InitProducerId": Request(
        lambda context: (
            init_producer_id.InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=PATIENCE_MS
            ),
            1,
        ),
        _code,
    ),
    "ApiVersions": Request(lambda context: (api_versions.ApiVersionsRequest(), 2), _code),
}
"""Of each class one or more, so that each can change what another sees."""


def seen(address: Address, first: str, second: str) -> list[Shown]:
    """What the answers to a pair show, asked of one node in one write."""
    with RawConnection(address, timeout_s=60.0) as link:
        context = PairContext(link)
        context.prepare()
        pair = (REQUESTS[first], REQUESTS[second])
        answers = context.ask(*(request.made(context) for request in pair))
        return [request.shown(answer) for request, answer in zip(pair, answers, strict=True)]


def everything(address: Address, first: str) -> dict[str, list[Shown]]:
    """The same for every request behind ``first``."""
    return {second: seen(address, first, second) for second in REQUESTS}


def golden() -> dict[str, dict[str, list[Shown]]]:
    """What Apache Kafka 3.9.1 answered: by the first request, then by the second."""
    found: dict[str, dict[str, list[Shown]]] = json.loads(GOLDEN.read_text())
    return found


def _lines(found: dict[str, dict[str, list[Shown]]]) -> Iterator[str]:
    yield "{"
    for number, (first, behind) in enumerate(found.items(), start=1):
        yield f" {json.dumps(first)}: {{"
        for place, (second, shown) in enumerate(behind.items(), start=1):
            yield f"  {json.dumps(second)}: {json.dumps(shown)}" + "," * (place < len(behind))
        yield " }" + "," * (number < len(found))
    yield "}"


def main() -> int:
    """Ask Apache Kafka, and write down what it answers."""
    from tests.harness.deployments import KafkaCluster

    kafka = KafkaCluster(1, {**SETTINGS, "zookeeper.session.timeout.ms": "18000"})
    try:
        address = kafka.addresses[0]
        found = {first: everything(address, first) for first in REQUESTS}
    finally:
        kafka.stop()
    GOLDEN.write_text("\n".join(_lines(found)) + "\n")
    return 0


SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}

if __name__ == "__main__":
    sys.exit(main())

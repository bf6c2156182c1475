"""Znodes that a hostile hand wrote: a node says so, and serves all that they do not name.

Written while a node runs, or found at its start. Source: docs/spec/reliability.md §8.2 (a forged
znode is ignored, and an alarm is raised).
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from functools import partial

import pytest
from _pytest.mark.structures import ParameterSet

from barnabas.broker.daemon import NodeFailed
from barnabas.client.connection.connection import Connection
from barnabas.client.zookeeper.interface import Create, Delete, Set
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    create_topics,
    init_producer_id,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.zookeeper import znodes
from tests.fuzz.engine import Seed, spoilt
from tests.harness.seeds import seeds
from tests.sim.simulated_loop import seeded_runner
from tests.sim.test_daemon import HOST, SingleNodeCluster, eventually, prepared

STATE = znodes.partition_state_path("t", 0)
BAD = {
    "nothing": b"",
    "no text": b"\xff\xfe",
    "null": b"null",
    "an array": b"[]",
    "an empty object": b"{}",
    "nested": b"[" * 30_000,
    "a number without end": b'{"version":' + b"9" * 5_000 + b"}",
}
PATHS = (
    znodes.CONTROLLER,
    znodes.CONTROLLER_EPOCH,
    znodes.broker_path(1),
    znodes.broker_path(2),
    znodes.topic_path("t"),
    znodes.topic_path("evil"),
    STATE,
    znodes.topic_config_path("t"),
    znodes.broker_config_path(1),
    znodes.broker_config_path(None),
    znodes.CONFIG_CHANGE_PREFIX + "0000000099",
    znodes.CONFIG_CHANGES + "/nonsense",
    znodes.REASSIGN_PARTITIONS,
    znodes.PREFERRED_ELECTION,
    znodes.deletion_path("evil"),
    znodes.ISR_CHANGE_PREFIX + "0000000099",
    znodes.LOG_DIR_EVENT_PREFIX + "0000000099",
    znodes.PRODUCER_ID_BLOCK,
    znodes.CLUSTER_ID,
)


def text(**values: object) -> bytes:
    return json.dumps(values).encode()


def registration(**changes: object) -> bytes:
    values: dict[str, object] = {
        "version": 5,
        "endpoints": [f"PLAINTEXT://{HOST}:9099"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "timestamp": "5",
        "roles": ["broker", "coordinator"],
    }
    return text(**{**values, **changes})


LARGE = 1 << 40
LIES = {
    "a node id of another alphabet": ("/brokers/ids/²", registration()),
    "a node id beyond 32 bits": (f"/brokers/ids/{LARGE}", registration()),
    "a node id that is no number": ("/brokers/ids/evil", registration()),
    "a host of half a character": (znodes.broker_path(2), registration(endpoints=["P://\ud800:9"])),
    "a host that is very long": (
        znodes.broker_path(2),
        registration(endpoints=["PLAINTEXT://" + "h" * 40_000 + ":9099"]),
    ),
    "a rack of half a character": (znodes.broker_path(2), registration(rack="\ud800")),
    "a rack that is very long": (znodes.broker_path(2), registration(rack="r" * 40_000)),
    "no endpoints": (znodes.broker_path(2), registration(endpoints=[])),
    "a partition beyond 32 bits": (
        znodes.topic_path("evil"),
        text(version=1, partitions={str(LARGE): [1]}),
    ),
    "a partition below zero": (znodes.topic_path("evil"), text(version=1, partitions={"-1": [1]})),
    "a replica beyond 32 bits": (
        znodes.topic_path("evil"),
        text(version=1, partitions={"0": [LARGE]}),
    ),
    "a replica below zero": (znodes.topic_path("evil"), text(version=1, partitions={"0": [-5]})),
    "a replica twice": (znodes.topic_path("evil"), text(version=1, partitions={"0": [1, 1]})),
    "no replicas": (znodes.topic_path("evil"), text(version=1, partitions={"0": []})),
    "no partitions": (znodes.topic_path("evil"), text(version=1, partitions={})),
    "replicas that nobody adds": (
        znodes.topic_path("evil"),
        text(version=3, partitions={"0": [1]}, adding_replicas={"7": [9]}, removing_replicas={}),
    ),
    "a topic whose name is no topic's": ("/brokers/topics/a b", text(partitions={"0": [1]})),
    "another id for a topic": (
        znodes.topic_path("t"),
        text(version=3, partitions={"0": [1]}, topic_id="A" * 22),
    ),
    "more partitions of a topic": (
        znodes.topic_path("t"),
        text(version=1, partitions={"0": [1], str(LARGE): [1]}),
    ),
    "a leader beyond 32 bits": (
        STATE,
        text(version=1, leader=LARGE, leader_epoch=1, controller_epoch=1, isr=[1]),
    ),
    "a leader epoch beyond 32 bits": (
        STATE,
        text(version=1, leader=1, leader_epoch=LARGE, controller_epoch=1, isr=[1]),
    ),
    "the last leader epoch": (
        STATE,
        text(version=1, leader=1, leader_epoch=2**31 - 1, controller_epoch=1, isr=[1]),
    ),
    "a controller epoch that nobody has reached": (
        STATE,
        text(version=1, leader=1, leader_epoch=5, controller_epoch=2**31 - 1, isr=[1]),
    ),
    "nobody in sync": (
        STATE,
        text(version=1, leader=-1, leader_epoch=5, controller_epoch=1, isr=[]),
    ),
    "strangers in sync": (
        STATE,
        text(version=1, leader=7, leader_epoch=5, controller_epoch=1, isr=[7, 8]),
    ),
    "the last controller epoch": (znodes.CONTROLLER_EPOCH, str(2**31 - 1).encode()),
    "a controller epoch beyond 32 bits": (znodes.CONTROLLER_EPOCH, str(LARGE).encode()),
    "a controller epoch below zero": (znodes.CONTROLLER_EPOCH, b"-7"),
    "a block of producer ids beyond 64 bits": (
        znodes.PRODUCER_ID_BLOCK,
        text(version=1, broker=1, block_start="0", block_end=str(2**63 - 1)),
    ),
    "a block of producer ids below zero": (
        znodes.PRODUCER_ID_BLOCK,
        text(version=1, broker=1, block_start="-10", block_end="-5"),
    ),
    "a move of what there is not": (
        znodes.REASSIGN_PARTITIONS,
        text(version=1, partitions=[{"topic": "no", "partition": LARGE, "replicas": [1]}]),
    ),
    "a move to nobody": (
        znodes.REASSIGN_PARTITIONS,
        text(version=1, partitions=[{"topic": "t", "partition": 0, "replicas": []}]),
    ),
    "an election of what there is not": (
        znodes.PREFERRED_ELECTION,
        text(version=1, partitions=[{"topic": "\ud800", "partition": -1}]),
    ),
    "in-sync changes of what there is not": (
        znodes.ISR_CHANGE_PREFIX + "0000000099",
        text(version=1, partitions=[{"topic": "../..", "partition": LARGE}]),
    ),
    "a failed disk of nobody": (
        znodes.LOG_DIR_EVENT_PREFIX + "0000000099",
        text(version=1, broker=LARGE, event=1),
    ),
    "a setting of half a character": (
        znodes.topic_config_path("t"),
        text(version=1, config={"segment.bytes": "\ud800"}),
    ),
    "a setting that makes no sense": (
        znodes.topic_config_path("t"),
        text(version=1, config={"segment.bytes": "-1", "unknown": "x"}),
    ),
    "a change of a path": (
        znodes.CONFIG_CHANGE_PREFIX + "0000000099",
        text(version=2, entity_path="topics/../../brokers"),
    ),
    "a change of nothing": (
        znodes.CONFIG_CHANGE_PREFIX + "0000000099",
        text(version=2, entity_path="topics/"),
    ),
    "the last number of a change": (
        znodes.CONFIG_CHANGE_PREFIX + "9" * 40,
        text(version=2, entity_path="topics/t"),
    ),
    "a deletion of what is no topic": ("/admin/delete_topics/a b", b""),
    "a settings folder of what is no topic": ("/config/topics/a b", b"{"),
}
CASES = {f"{name} at {path}": (path, data) for path in PATHS for name, data in BAD.items()} | LIES
USUAL = ("no text", "an empty object")
"""Of BAD, in `make test`."""
ENDS_THE_START = {
    znodes.CLUSTER_ID: znodes.CLUSTER_ID,
    znodes.broker_path(1): "broker.id=1 is",
    znodes.broker_path(2): "is already registered by node 2",
}
"""What a start is refused for, and what it says then: another cluster's, another node's."""
MAY_COST_THE_TOPIC = ("/brokers/topics/t", "/config/topics/t")
"""What stands below decides about the topic t alone."""
MAY_COST_NEW_TOPICS = (znodes.CONTROLLER_EPOCH, znodes.CONTROLLER, znodes.broker_path(1))
"""Nobody can be elected while nobody knows the last epoch, or another is; nobody can be assigned
whose registration nobody can read. What is led goes on."""
LINES_MAX = 60
LIFE_S = 900
"""Of simulated time: far more than any of these lives takes."""
TURNS_MAX = 200_000
"""Of the loop in one life; they take about 1,000."""


class Lines(logging.Handler):
    """What is told at WARNING or above, tracebacks apart."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            self.tracebacks.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


def write(cluster: SingleNodeCluster, path: str, data: bytes) -> None:
    """As somebody else's session does it."""
    tree = cluster.ensemble.tree
    if path in tree.nodes:
        tree.write(0, Set(path, data))
        return
    parent = path.rpartition("/")[0]
    if parent and parent not in tree.nodes:
        write(cluster, parent, b"")
    tree.write(0, Create(path, data))


def mend(cluster: SingleNodeCluster, path: str, good: bytes | None) -> None:
    """As an operator does it."""
    if good is None:
        cluster.ensemble.tree.write(0, Delete(path))
    else:
        write(cluster, path, good)


async def produced(connection: Connection, topic: str) -> bool | None:
    part = produce.Partition(index=0, records=bytes(build_batch([(b"k", b"v")], timestamp_ms=1)))
    request = produce.ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[produce.Topic(name=topic, partition_data=[part])]
    )
    answer = await connection.request(request, 7)
    return True if not answer.responses[0].partition_responses[0].error_code else None


async def created(connection: Connection, name: str) -> bool | None:
    here = create_topics.Assignment(partition_index=0, broker_ids=[1])
    topic = create_topics.Topic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=[here]
    )
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    code = (await connection.request(request, 5)).topics[0].error_code
    return True if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) else None


async def serves(connection: Connection, path: str) -> None:
    """All that the znode does not name."""
    async with asyncio.timeout(120):
        answer = await connection.request(metadata.MetadataRequest(topics=None), 9)
        assert {broker.node_id for broker in answer.brokers} >= {1}
        if not path.startswith(MAY_COST_THE_TOPIC):
            await eventually(partial(produced, connection, "t"))
        topic = "t"
        if path not in MAY_COST_NEW_TOPICS:
            topic = "another"
            await eventually(partial(created, connection, topic))
            await eventually(partial(produced, connection, topic))
        await eventually(partial(committed, connection, topic, 2))
        assert await eventually(partial(fetched, connection, topic)) == 2
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1000
        )
        given = await connection.request(request)
        is_refused = given.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert given.producer_id >= 0 or (is_refused and path == znodes.PRODUCER_ID_BLOCK)


async def committed(connection: Connection, topic: str, offset: int) -> bool | None:
    part = offset_commit.Partition(partition_index=0, committed_offset=offset)
    request = offset_commit.OffsetCommitRequest(
        group_id="g", topics=[offset_commit.Topic(name=topic, partitions=[part])]
    )
    answer = await connection.request(request, 7)
    return True if not answer.topics[0].partitions[0].error_code else None


async def fetched(connection: Connection, topic: str) -> int | None:
    wanted = offset_fetch.Topic(name=topic, partition_indexes=[0])
    request = offset_fetch.OffsetFetchRequest(group_id="g", topics=[wanted])
    answer = await connection.request(request, 6)
    return None if answer.error_code else int(answer.topics[0].partitions[0].committed_offset)


async def life(cluster: SingleNodeCluster, path: str, data: bytes, *, at_start: bool) -> None:
    node = await cluster.start()
    connection = await Connection.open(HOST, 9092)
    await prepared(connection)
    await eventually(partial(committed, connection, "t", 1))
    await eventually(partial(produced, connection, "t"))
    if at_start:
        await connection.close()
        cluster.stop.set()
        await node
    before = cluster.ensemble.tree.nodes.get(path)
    good = None if before is None else before.data
    write(cluster, path, data)
    if at_start:
        node = await cluster.start()
        connection = await Connection.open(HOST, 9092)
    await asyncio.sleep(30)
    assert not node.done(), node.exception()
    if path in MAY_COST_NEW_TOPICS and at_start:
        mend(cluster, path, good)  # until then nobody is told whom to follow
    await serves(connection, path)
    await connection.close()
    cluster.stop.set()
    await node


def simulate(path: str, data: bytes, *, at_start: bool, seed: int = 1) -> Lines:
    """One life; what was logged."""
    lines = Lines()
    root = logging.getLogger()
    root.addHandler(lines)
    try:
        with seeded_runner(seed, TURNS_MAX) as (runner, loop):
            scenario = life(SingleNodeCluster(loop), path, data, at_start=at_start)
            try:
                runner.run(asyncio.wait_for(scenario, LIFE_S))
            except (AssertionError, NodeFailed) as failure:
                said = ENDS_THE_START.get(path)
                if not at_start or said is None or said not in str(failure):
                    raise
    finally:
        root.removeHandler(lines)
    return lines


def cases() -> list[ParameterSet]:
    return [
        pytest.param(
            name, marks=() if name in LIES or name.startswith(USUAL) else pytest.mark.nightly
        )
        for name in CASES
    ]


def judge(lines: Lines) -> None:
    assert not lines.tracebacks
    assert len(lines.told) < LINES_MAX, lines.told[:5]


@pytest.mark.parametrize("at_start", [False, True], ids=["while it runs", "at a start"])
@pytest.mark.parametrize("case", cases())
def test_a_node_lives_with_znodes_of_a_hostile_hand(case: str, at_start: bool) -> None:
    judge(simulate(*CASES[case], at_start=at_start))


TREE = {
    znodes.broker_path(2): registration(),
    znodes.topic_path("t"): text(
        version=3, partitions={"0": [1]}, adding_replicas={}, removing_replicas={}
    ),
    znodes.topic_path("evil"): text(version=1, partitions={"0": [1]}),
    STATE: text(version=1, leader=1, leader_epoch=0, controller_epoch=1, isr=[1]),
    znodes.topic_config_path("t"): text(version=1, config={"segment.bytes": "1000"}),
    znodes.broker_config_path(1): text(version=1, config={"log.cleaner.threads": "2"}),
    znodes.CONFIG_CHANGE_PREFIX + "0000000099": text(version=2, entity_path="topics/t"),
    znodes.REASSIGN_PARTITIONS: text(
        version=1, partitions=[{"topic": "t", "partition": 0, "replicas": [1]}]
    ),
    znodes.PREFERRED_ELECTION: text(version=1, partitions=[{"topic": "t", "partition": 0}]),
    znodes.ISR_CHANGE_PREFIX + "0000000099": text(
        version=1, partitions=[{"topic": "t", "partition": 0}]
    ),
    znodes.LOG_DIR_EVENT_PREFIX + "0000000099": text(version=1, broker=1, event=1),
    znodes.PRODUCER_ID_BLOCK: text(version=1, broker=1, block_start="0", block_end="999"),
}
"""Good ones, to be spoilt."""


@pytest.mark.parametrize("seed", seeds(range(1, 25), range(25, 2_000)))
def test_a_node_lives_with_znodes_that_were_spoilt_at_random(seed: int) -> None:
    rng = random.Random(seed)
    path = rng.choice(sorted(TREE))
    seed_bytes = [Seed(name, data, len) for name, data in TREE.items()]
    data = spoilt(rng, seed_bytes, Seed(path, TREE[path], len))
    judge(simulate(path, data, at_start=rng.random() < 0.5, seed=seed))

"""What one Produce of a small batch costs inside this process, and where it goes.

    python -m benchmarks.produce_path [--rounds N] [--profile]

As hot_path.py for commits: connections, dispatcher, handler and logs on disk are real, sockets are
not, and the least of many short rounds is printed. Eight connections send four requests in a turn,
each of one batch for one of a hundred partitions, as librdkafka does.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import random
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import uvloop

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.handlers.transactional import TransactionalBatches
from barnabas.broker.net.connection import Connection
from barnabas.broker.net.dispatch import Dispatcher
from barnabas.broker.net.limits import Limits
from barnabas.broker.net.listener import Listener
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.runtime import gc_tuning
from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.settings.node_config import NetworkSettings, StorageSettings
from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.files import DiskFiles
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.verification.verifier import Question
from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec.compiler import encoder, view_decoder
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import leader_and_isr, produce
from barnabas.protocol.records import batch
from barnabas.protocol.records.produce_rules import ProduceRules
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.validate import prepare
from benchmarks.hot_path import NODE, Alone, Socket, least, until

VERSION: Final = 9
TOPIC: Final = "load"
PARTITIONS: Final = 100
RECORDS, VALUE_BYTES = 10, 200
CONNECTIONS, IN_FLIGHT = 8, 4
OFTEN: Final = 64
"""Times that a stage is gone through in a round."""
NOW_MS: Final = 1_800_000_000_000
_HEADER: Final = struct.pack(">hhih", ApiKey.PRODUCE, VERSION, 7, 4) + b"load\0"
_LENGTH_BYTES: Final = 4


class NoVerifier:
    """Nothing here belongs to a transaction."""

    def ask(self, question: Question) -> None:
        """Never asked."""
        raise AssertionError(question)


def request(partition: int) -> bytes:
    """The frame of one batch."""
    records = [
        Record(index, NOW_MS + index, b"key %d" % index, random.randbytes(VALUE_BYTES))
        for index in range(RECORDS)
    ]
    data = produce.Partition(index=partition, records=bytes(batch.build_batch_of(records)))
    topic = produce.Topic(name=TOPIC, partition_data=[data])
    asked = produce.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
    body = _HEADER + encoder(produce.ProduceRequest, VERSION)(asked)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


@asynccontextmanager
async def node(directory: Path) -> AsyncIterator[tuple[Listener, ReplicaManager]]:
    """A node that leads every partition of the load."""
    logs = LogManager(
        DiskFiles(), [directory], LogConfig(), lambda topic: {}, lambda: NOW_MS,
        intervals=StorageSettings(), random=random.Random(1),
    )  # fmt: skip
    await logs.load()
    replicas = ReplicaManager(
        NODE, logs, knows=lambda topic, index: True, context=Alone(), fetchers=Alone()
    )
    states = [
        leader_and_isr.PartitionState(
            partition_index=index, leader=NODE, isr=[NODE], replicas=[NODE]
        )
        for index in range(PARTITIONS)
    ]
    topics = [leader_and_isr.TopicState(topic_name=TOPIC, partition_states=states)]
    told = leader_and_isr.LeaderAndIsrRequest(controller_epoch=1, topic_states=topics)
    at_once(replicas.apply_leader_and_isr(told, lambda: ErrorCode.NONE))
    async with asyncio.TaskGroup() as tasks:
        dispatcher = Dispatcher(tasks)
        transactions = TransactionalBatches(
            NoVerifier(), is_enabled=lambda: True, now_ms=lambda: NOW_MS
        )
        handler = ProduceHandler(
            replicas,
            loop=asyncio.get_running_loop(),
            now_ms=lambda: NOW_MS,
            transactions=transactions,
        )
        dispatcher.register(handler.handlers())
        listener = Listener("CLIENT", dispatcher, Limits(NetworkSettings()))
        listener.is_serving = True
        yield listener, replicas
    await logs.close()


class Producers:
    """Connections, and what each sends in one turn."""

    def __init__(self, listener: Listener) -> None:
        self._sockets: list[Socket] = []
        self._lanes: list[tuple[Connection, bytes]] = []
        for number in range(CONNECTIONS):
            connection, socket = Connection(listener), Socket()
            connection.connection_made(socket)
            frames = [request((number * IN_FLIGHT + i) % PARTITIONS) for i in range(IN_FLIGHT)]
            self._lanes.append((connection, b"".join(frames)))
            self._sockets.append(socket)
        self._answer_bytes = 0

    async def turn(self) -> None:
        """Every connection sends its part, and has its answers."""
        before = self._written()
        for connection, frames in self._lanes:
            connection.data_received(frames)
        if not self._answer_bytes:  # nothing here may be slower than a few turns of the loop
            await asyncio.sleep(0.1)
            self._answer_bytes = self._written() - before
        await until(lambda: self._written() - before >= self._answer_bytes)

    def _written(self) -> int:
        return sum(socket.written for socket in self._sockets)


async def shares(replicas: ReplicaManager, rounds: int) -> dict[str, float]:
    """The stages of a request one by one, in microseconds."""
    frame, start = request(3), _LENGTH_BYTES + len(_HEADER)
    read, rules = view_decoder(produce.ProduceRequest, VERSION), ProduceRules()
    records = read(frame, start).topic_data[0].partition_data[0].records
    data = memoryview(bytearray(records or b""))
    partition = replicas.led(TOPIC, 3)
    result = produce.PartitionResult(index=3, base_offset=7)
    topic = produce.TopicResult(name=TOPIC, partition_responses=[result])
    answer = produce.ProduceResponse(responses=[topic])
    write = encoder(produce.ProduceResponse, VERSION)
    stages: dict[str, Callable[[], object]] = {
        "decode": lambda: read(frame, start),
        "check": lambda: prepare(data, produce_version=VERSION, rules=rules, now_ms=NOW_MS),
        "append": lambda: partition.append(data, acks=-1, is_client=True),
        "encode": lambda: write(answer),
    }
    return {name: await least(_often(do), OFTEN, rounds) for name, do in stages.items()}


def _often(do: Callable[[], object]) -> Callable[[], None]:
    def work() -> None:
        for _ in range(OFTEN):
            do()

    return work


async def measure(directory: Path, rounds: int, *, is_profiled: bool) -> None:
    """Print the cost of a request and of its stages, or a profile."""
    async with node(directory) as (listener, replicas):
        producers = Producers(listener)
        for _ in range(20):
            await producers.turn()
        gc_tuning.tune()
        if is_profiled:
            with cProfile.Profile(timer=time.perf_counter_ns, timeunit=1e-9) as profile:
                for _ in range(rounds):
                    await producers.turn()
            pstats.Stats(profile).sort_stats("tottime").print_stats(30)
            return
        cost = await least(producers.turn, CONNECTIONS * IN_FLIGHT, rounds)
        print(f"produce, a batch of {RECORDS} records of {VALUE_BYTES} bytes: {cost:.2f} us")
        found = await shares(replicas, rounds // 4)
        print("  ".join(f"{name} {each:.2f}" for name, each in found.items()))


def main(words: Sequence[str] | None = None) -> None:
    """Measure in a temporary directory."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--profile", action="store_true", help="by function instead")
    options = parser.parse_args(words)
    with (
        tempfile.TemporaryDirectory() as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        measuring = measure(Path(directory), options.rounds, is_profiled=options.profile)
        runner.run(measuring)


if __name__ == "__main__":
    main()

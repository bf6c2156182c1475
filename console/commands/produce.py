"""``barnabas produce``: records from the command line or from standard input, a line each.

Source: docs/spec/users.md §2.2 (kcat -P); docs/spec/users.md §2.1 (kafka-console-producer).
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

from barnabas.client.client_config import ClientConfig
from barnabas.client.errors import KafkaError
from barnabas.client.producer.accumulator import Delivery, RecordMetadata
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.producer_config import ProducerConfig
from barnabas.console.command_line.cluster_options import add_cluster_options, reach
from barnabas.console.command_line.failure import Failure, Misuse
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.output import note
from barnabas.console.command_line.setting_arguments import setting
from barnabas.console.records.input_lines import standard_input
from barnabas.console.records.line_format import LineFormat, unescaped
from barnabas.protocol.settings import ConfigError

_AS_JAVA_DOES: Final = {"partitioner.class": "murmur2"}
"""A key goes where the producers of most other programs would have put it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The topic, the records, and how a line is read."""
    parser.add_argument("topic")
    parser.add_argument(
        "values", nargs="*", metavar="VALUE", help="a record each (default: each line of input)"
    )
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--key", help="of every record")
    keys.add_argument(
        "-K",
        "--key-separator",
        metavar="TEXT",
        help="a key stands before this in each line; \\t is a tab",
    )
    parser.add_argument(
        "-H",
        "--header",
        dest="headers",
        action="append",
        type=setting,
        default=[],
        metavar="NAME=VALUE",
        help="of every record; may be repeated",
    )
    parser.add_argument(
        "-p", "--partition", type=whole_number(0), metavar="P", help="default: by the key"
    )
    parser.add_argument(
        "--null-marker", metavar="TEXT", help="a key or value that reads so is null: a tombstone"
    )
    parser.add_argument(
        "--config",
        action="append",
        type=setting,
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the producer, such as compression.type=zstd; may be repeated",
    )
    add_cluster_options(parser)


def run(chosen: argparse.Namespace) -> int:
    """Send everything; 1 when a record was not acknowledged."""
    try:
        config = ProducerConfig.of(
            {
                **_AS_JAVA_DOES,
                "delivery.timeout.ms": chosen.timeout_ms,
                "request.timeout.ms": chosen.timeout_ms,
                **dict(chosen.config),
            }
        )
    except ConfigError as error:
        raise Misuse(f"--config: {error}") from None
    lines = LineFormat(
        key=chosen.key,
        key_separator=unescaped(chosen.key_separator),
        null_marker=chosen.null_marker,
    )
    if config.transactional_id is not None:
        raise Misuse("--config: transactional.id: no transaction would ever be committed")
    work = _Production(chosen, lines, config)
    return reach(chosen, work.run, client_id="barnabas-produce")


class _Production:
    """One run of the command: what was read, sent, acknowledged and refused."""

    def __init__(
        self, chosen: argparse.Namespace, lines: LineFormat, config: ProducerConfig
    ) -> None:
        self._chosen = chosen
        self._lines = lines
        self._config = config
        self._headers = [(name, value.encode()) for name, value in chosen.headers]
        self._under_way: deque[tuple[int, Delivery]] = deque()
        self._acknowledged = self._refused = 0

    async def run(self, bootstrap: str, client: ClientConfig) -> int:
        """Send everything and tell of it; the exit code."""
        async with Producer(bootstrap, self._config, client=client) as producer:
            await self._check(producer)
            number = 0
            async for lines in self._input():
                for line in lines:
                    number += 1
                    await self._send(producer, number, line)
                await self._tell_done()
            await producer.flush()
            await self._tell_done()
        if not self._chosen.json:
            plural = "" if self._acknowledged == 1 else "s"
            note(f"produced {self._acknowledged} record{plural} to {self._chosen.topic}")
        return 1 if self._refused else 0

    async def _check(self, producer: Producer) -> None:
        """Raise Failure before anything is read for a partition that the topic does not have."""
        count = await producer.partitions_for(self._chosen.topic)
        partition = self._chosen.partition
        if partition is not None and partition >= count:
            raise Failure(f"{self._chosen.topic} has {count} partitions: there is no {partition}")

    async def _input(self) -> AsyncIterator[list[bytes]]:
        """Records typed as arguments, else lines as they come: a pipe need not end first."""
        if self._chosen.values:
            yield [value.encode(errors="surrogateescape") for value in self._chosen.values]
            return
        async for lines in standard_input():
            yield lines

    async def _send(self, producer: Producer, number: int, line: bytes) -> None:
        record = self._lines.record(line, number)
        if not producer.has_room:
            await producer.room()
            await self._tell_done()
        delivery = producer.send_soon(
            self._chosen.topic,
            record.value,
            key=record.key,
            partition=self._chosen.partition,
            headers=self._headers,
        )
        self._under_way.append((number, delivery))

    async def _tell_done(self) -> None:
        """Tell of what is done already, in the order of the input."""
        while self._under_way and self._under_way[0][1].is_done:
            number, delivery = self._under_way.popleft()
            try:
                self._tell(await delivery)
            except KafkaError as error:
                self._refused += 1
                note(f"barnabas: record {number}: {error}")

    def _tell(self, place: RecordMetadata) -> None:
        self._acknowledged += 1
        if self._chosen.json:
            print(json.dumps(_place(place)), flush=True)


def _place(place: RecordMetadata) -> dict[str, Any]:
    return {
        "topic": place.topic,
        "partition": place.partition,
        "offset": place.offset,
        "ts": place.timestamp,
    }

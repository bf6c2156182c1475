"""``barnabas consume``: the records of topics on standard output, as a reader or as a member.

Source: docs/spec/users.md §2.2 (kcat -C and -G); docs/spec/users.md §2.1 (kafka-console-consumer).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Final

from barnabas.client.client_config import ClientConfig
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.consumer_config import ConsumerConfig, parse_consumer
from barnabas.client.consumer.fetch_config import FetchConfig
from barnabas.client.consumer.list_offsets import LATEST
from barnabas.client.topology import TopicPartition
from barnabas.console.command_line.cluster_options import add_cluster_options, reach
from barnabas.console.command_line.failure import Failure, Misuse
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.setting_arguments import setting
from barnabas.console.records.record_lines import Line, json_line, line_of_format
from barnabas.console.records.start_offsets import (
    FROM_BEGINNING,
    partitions_of,
    positions,
    start_of,
)
from barnabas.protocol.settings import ConfigError

_FORMAT: Final = r"%s\n"
_BATCH_MAX: Final = 1_000
_LOOK_S: Final = 0.2
"""How often a reader that ends at the end looks whether it is there: markers are no records."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Topics, where to begin and end, and how a record is shown."""
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument(
        "-o",
        "--offset",
        type=start_of,
        metavar="WHERE",
        help="beginning (the default), end, an offset, -N for the last N of each partition, "
        "@TIME in ms or as 2026-11-23T14:00:00",
    )
    parser.add_argument(
        "-p",
        "--partition",
        dest="partitions",
        action="append",
        type=whole_number(0),
        default=[],
        metavar="P",
        help="only this one; may be repeated",
    )
    parser.add_argument(
        "-G",
        "--group",
        metavar="GROUP",
        help="as a member of this group, which goes on where it has committed",
    )
    parser.add_argument("-c", "--count", type=whole_number(1), metavar="N", help="end after N")
    parser.add_argument(
        "-e", "--exit", action="store_true", help="end where the topics end now, wait for no more"
    )
    parser.add_argument(
        "-f",
        "--format",
        type=line_of_format,
        default=line_of_format(_FORMAT),
        metavar="FORMAT",
        help="%%s value, %%k key, %%t topic, %%p partition, %%o offset, %%T time in ms, "
        "%%h headers, %%S and %%K sizes; \\n \\t (default: %%s\\n)",
    )
    parser.add_argument(
        "--config",
        action="append",
        type=setting,
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the consumer, such as isolation.level=read_committed; may be repeated",
    )
    add_cluster_options(parser)


def run(chosen: argparse.Namespace) -> int:
    """Print until the end that was asked for, or until Ctrl-C."""
    if chosen.group is not None and (chosen.offset or chosen.partitions or chosen.exit):
        raise Misuse(
            "--group shares the topics and goes on where it has committed: leave out --offset, "
            "--partition and --exit (`barnabas groups reset` moves a group)"
        )
    if chosen.partitions and len(chosen.topics) > 1:
        raise Misuse("--partition is of one topic: name only one")
    try:
        config, fetch, _ = parse_consumer({"auto.offset.reset": "earliest", **dict(chosen.config)})
    except ConfigError as error:
        raise Misuse(f"--config: {error}") from None
    line = json_line if chosen.json else chosen.format

    async def read(bootstrap: str, client: ClientConfig) -> int:
        await _Reading(chosen, line).run(bootstrap, config, fetch, client)
        return 0

    return reach(chosen, read, client_id="barnabas-consume")


class _Reading:
    """One run of the command."""

    def __init__(self, chosen: argparse.Namespace, line: Line) -> None:
        self._chosen = chosen
        self._line = line
        self._ends: dict[TopicPartition, int] = {}
        """Where to stop, by partition not read up to there; only with ``--exit``."""
        self._left: int | None = chosen.count

    async def run(
        self, bootstrap: str, config: ConsumerConfig, fetch: FetchConfig, client: ClientConfig
    ) -> None:
        """Read and print."""
        chosen = self._chosen
        topics = chosen.topics if chosen.group is not None else ()
        async with Consumer(
            bootstrap, *topics, group=chosen.group, config=config, fetch=fetch, client=client
        ) as consumer:
            await self._check_topics(consumer)
            if chosen.group is None:
                await self._begin(consumer)
            while not self._is_done(consumer):
                await self._print_next(consumer)

    async def _check_topics(self, consumer: Consumer) -> None:
        """Raise Failure for a topic that is not there: waiting for it would hide a slip."""
        await consumer.cluster.metadata(self._chosen.topics)
        for topic in self._chosen.topics:
            if topic not in consumer.cluster.topology.counts:
                why = consumer.cluster.topology.topic_errors[topic]
                raise Failure(f"topic {topic}: {why.name}")

    async def _begin(self, consumer: Consumer) -> None:
        counts = consumer.cluster.topology.counts
        partitions = [
            place
            for topic in dict.fromkeys(self._chosen.topics)
            for place in partitions_of(topic, counts[topic], self._chosen.partitions)
        ]
        ends = await consumer.offsets_for_times(dict.fromkeys(partitions, LATEST))
        start = self._chosen.offset or FROM_BEGINNING
        first = await positions(consumer, partitions, start, ends)
        if self._chosen.exit:
            self._ends = ends
            first = {place: at for place, at in first.items() if at < ends[place]}
            self._forget_reached(first)
        await consumer.assign(first)

    def _forget_reached(self, reached: Mapping[TopicPartition, int]) -> None:
        for place in [place for place in self._ends if place not in reached]:
            del self._ends[place]

    def _is_done(self, consumer: Consumer) -> bool:
        if self._left == 0:
            return True
        if not self._chosen.exit:
            return False
        # What is handed out to nobody, the marker of a transaction, moves the position, too.
        positions_now = {place: consumer.position(place) or 0 for place in self._ends}
        self._ends = {place: end for place, end in self._ends.items() if positions_now[place] < end}
        return not self._ends

    async def _print_next(self, consumer: Consumer) -> None:
        most = _BATCH_MAX if self._left is None else min(_BATCH_MAX, self._left)
        batch = await consumer.next_batch(most, timeout_s=_LOOK_S)
        if batch is None:
            return
        records = batch.records()
        if self._chosen.exit:  # what came behind the end meanwhile is not asked for
            records = [
                record
                for record in records
                if record.offset < self._ends.get(TopicPartition(record.topic, record.partition), 0)
            ]
        if self._left is not None:
            self._left -= len(records)
        sys.stdout.buffer.write(b"".join(map(self._line, records)))
        sys.stdout.buffer.flush()

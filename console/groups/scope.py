"""Which groups and which partitions a command is about.

Source: docs/spec/users.md §2.1 (scopes of kafka-consumer-groups).
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Mapping, Sequence

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import GroupDescription
from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.failure import Failure, Misuse
from barnabas.console.command_line.number_arguments import INT32_MAX
from barnabas.protocol.names import topic_problem

from .offsets_csv import partition_text

TopicScope = tuple[str, tuple[int, ...] | None]
"""A topic, and those of its partitions that are meant; None for all."""


def add_groups(parser: argparse.ArgumentParser, *, all_groups: bool = True) -> None:
    """Groups by position or by ``--group``, as often as wanted; or ``--all-groups``."""
    parser.add_argument("names", nargs="*", metavar="GROUP")
    parser.add_argument(
        "--group", dest="more_names", action="append", default=[], metavar="GROUP",
        help="the same; may be repeated",
    )  # fmt: skip
    if all_groups:
        parser.add_argument("--all-groups", action="store_true")
    else:
        parser.set_defaults(all_groups=False)


def add_topics(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """``--topic name`` or ``--topic name:0,1``, repeatable."""
    parser.add_argument(
        "--topic", dest="topics", action="append", default=[], type=topic_scope,
        required=required, metavar="NAME[:P,P,...]",
        help="all its partitions, or these; may be repeated",
    )  # fmt: skip


def topic_scope(text: str) -> TopicScope:
    """``name`` or ``name:0,1,2``; a type for argparse."""
    name, colon, listed = text.partition(":")
    if topic_problem(name) is not None:
        raise argparse.ArgumentTypeError(f"{name!r} names no topic")
    if not colon:
        return name, None
    words = listed.split(",")
    if not all(word.isascii() and word.isdigit() and int(word) <= INT32_MAX for word in words):
        raise argparse.ArgumentTypeError(f"{text} must read NAME:P,P,... with numbers")
    return name, tuple(dict.fromkeys(map(int, words)))


def is_in_scope(topics: Sequence[TopicScope], topic: str, partition: int) -> bool:
    """Whether a partition is meant; every one is where no topic was named."""
    return not topics or any(
        name == topic and (indexes is None or partition in indexes) for name, indexes in topics
    )


def scope_text(scope: TopicScope) -> str:
    """As it was typed."""
    name, indexes = scope
    return name if indexes is None else f"{name}:{','.join(map(str, indexes))}"


def names_given(chosen: argparse.Namespace) -> list[str]:
    """The groups that were typed, each once; raises Misuse for none, or for too much."""
    names = list(dict.fromkeys([*chosen.names, *chosen.more_names]))
    if chosen.all_groups and names:
        raise Misuse("name groups or say --all-groups, not both")
    if not chosen.all_groups and not names:
        raise Misuse("name a group, or say --all-groups")
    return names


async def described(admin: Admin, chosen: argparse.Namespace) -> list[GroupDescription]:
    """The groups that the command is about, as they are now."""
    names = names_given(chosen) or [group.group for group in await admin.list_groups()]
    return list(await asyncio.gather(*map(admin.describe_group, names)))


async def partitions_of(admin: Admin, topics: Sequence[TopicScope]) -> list[TopicPartition]:
    """Every partition that is meant; raises Failure for one that does not exist."""
    counts = await partition_counts(admin, (name for name, _ in topics))
    found: dict[TopicPartition, None] = {}
    for name, indexes in topics:
        topic_partitions = [
            TopicPartition(name, index) for index in indexes or range(counts.get(name, 0))
        ]
        require_existing(topic_partitions or [TopicPartition(name, 0)], counts)
        found.update(dict.fromkeys(topic_partitions))
    return sorted(found)


def require_existing(topic_partitions: Iterable[TopicPartition], counts: Mapping[str, int]) -> None:
    """Raise Failure for the first partition that its topic does not have."""
    for topic_partition in topic_partitions:
        count = counts.get(topic_partition.topic)
        if count is None:
            raise Failure(f"topic '{topic_partition.topic}' does not exist")
        if topic_partition.partition >= count:
            raise Failure(
                f"{partition_text(topic_partition)} does not exist: "
                f"the topic has {count} partitions"
            )


async def partition_counts(admin: Admin, names: Iterable[str]) -> dict[str, int]:
    """How many partitions each of these topics has; those that do not exist are left out."""
    wanted = sorted(set(names))
    answer = await admin.cluster.metadata(wanted)
    return {
        topic.name: len(topic.partitions)
        for topic in answer.topics
        if topic.name is not None and not topic.error_code
    }

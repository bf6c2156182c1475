"""``barnabas topics``: create, list, describe and delete.

Source: users.md section 2.1 (kafka-topics).
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from dataclasses import asdict

from barnabas.client.admin import Admin
from barnabas.client.descriptions import NewTopic, TopicDescription
from barnabas.client.errors import KafkaError
from barnabas.protocol.errors import ErrorCode

from .cluster_options import add_cluster_options, administer
from .numbers import INT16_MAX, whole_number
from .output import print_json, print_table, shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing that can be done to topics."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    create = commands.add_parser("create", help="make a topic")
    create.add_argument("name")
    create.add_argument("--partitions", type=whole_number(1), default=-1, metavar="N")
    create.add_argument(
        "--replication-factor", type=whole_number(1, INT16_MAX), default=-1, metavar="N"
    )
    create.add_argument("--config", action="append", type=setting, default=[], metavar="NAME=VALUE")
    create.add_argument("--if-not-exists", action="store_true", help="be content with one there")
    listing = commands.add_parser("list", help="name all topics")
    describe = commands.add_parser("describe", help="show leaders and replicas")
    describe.add_argument("names", nargs="*", metavar="NAME", help="default: all topics")
    delete = commands.add_parser("delete", help="remove topics and all their records")
    delete.add_argument("names", nargs="+", metavar="NAME")
    delete.add_argument("--if-exists", action="store_true", help="be content with one not there")
    for sub in (create, listing, describe, delete):
        add_cluster_options(sub)


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; failures are raised."""
    _COMMANDS[chosen.command](chosen)
    return 0


def setting(text: str) -> tuple[str, str]:
    """``name=value`` as a pair."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text} must read NAME=VALUE")
    return name, value


def _create(chosen: argparse.Namespace) -> None:
    topic = NewTopic(
        name=chosen.name,
        partitions=chosen.partitions,
        replication_factor=chosen.replication_factor,
        configs=dict(chosen.config),
    )
    is_new = _unless(
        ErrorCode.TOPIC_ALREADY_EXISTS,
        chosen.if_not_exists,
        lambda: administer(chosen, lambda admin: admin.create_topics([topic])),
    )
    if chosen.json:
        print_json({"name": topic.name, "created": is_new})
    else:
        print(f"created topic {topic.name}" if is_new else f"topic {topic.name} exists")


def _list(chosen: argparse.Namespace) -> None:
    topics = administer(chosen, lambda admin: admin.list_topics())
    if chosen.json:
        print_json([topic.name for topic in topics])
    for topic in () if chosen.json else topics:
        print(topic.name)


def _describe(chosen: argparse.Namespace) -> None:
    topics = administer(chosen, _described(chosen.names))
    if chosen.json:
        print_json([asdict(topic) for topic in topics])
        return
    rows = [
        (
            topic.name,
            each.partition,
            shown(each.leader),
            ",".join(map(str, each.replicas)),
            ",".join(map(str, each.in_sync)),
        )
        for topic in topics
        for each in topic.partitions
    ]
    print_table(("TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR"), rows)


def _described(names: list[str]) -> Callable[[Admin], Awaitable[list[TopicDescription]]]:
    if names:
        return lambda admin: admin.describe_topics(names)
    return lambda admin: admin.list_topics()


def _delete(chosen: argparse.Namespace) -> None:
    gone = {name: _delete_one(chosen, name) for name in chosen.names}
    if chosen.json:
        print_json([{"name": name, "deleted": is_gone} for name, is_gone in gone.items()])
        return
    for name, is_gone in gone.items():
        print(f"deleted topic {name}" if is_gone else f"topic {name} does not exist")


def _delete_one(chosen: argparse.Namespace, name: str) -> bool:
    return _unless(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        chosen.if_exists,
        lambda: administer(chosen, lambda admin: admin.delete_topics([name])),
    )


def _unless(tolerated: ErrorCode, is_tolerant: bool, work: Callable[[], None]) -> bool:
    """Whether ``work`` was done; False when it was refused with the tolerated code."""
    try:
        work()
    except KafkaError as error:
        if not is_tolerant or error.code is not tolerated:
            raise
        return False
    return True


_COMMANDS = {"create": _create, "list": _list, "describe": _describe, "delete": _delete}

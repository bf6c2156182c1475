"""``barnabas topics``: create, list, describe, alter and delete.

Source: users.md section 2.1 (kafka-topics).
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Final

from barnabas.client.admin import Admin
from barnabas.client.descriptions import NewTopic, TopicDescription
from barnabas.client.errors import KafkaError
from barnabas.client.topic_changes import add_partitions, alter_settings
from barnabas.protocol.errors import ErrorCode

from .cluster_options import add_cluster_options, administer
from .failure import Failure
from .numbers import INT16_MAX, whole_number
from .output import note, print_json, print_table, shown


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
    alter = commands.add_parser("alter", help="add partitions, change settings")
    alter.add_argument("name")
    alter.add_argument(
        "--partitions", type=whole_number(1), metavar="N", help="have so many, more than before"
    )
    alter.add_argument("--config", action="append", type=setting, default=[], metavar="NAME=VALUE")
    alter.add_argument(
        "--delete-config", action="append", default=[], metavar="NAME", help="back to the default"
    )
    delete = commands.add_parser("delete", help="remove topics and all their records")
    delete.add_argument("names", nargs="+", metavar="NAME")
    delete.add_argument("--if-exists", action="store_true", help="be content with one not there")
    for sub in (create, listing, describe, alter, delete):
        add_cluster_options(sub)


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; failures are raised, or reported where a part succeeded: then 1."""
    return _COMMANDS[chosen.command](chosen) or 0


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


def _alter(chosen: argparse.Namespace) -> None:
    if chosen.partitions is None and not chosen.config and not chosen.delete_config:
        raise Failure("nothing to alter: say --partitions, --config or --delete-config")

    async def alter(admin: Admin) -> None:
        if chosen.config or chosen.delete_config:
            settings = dict(chosen.config)
            await alter_settings(admin.cluster, chosen.name, settings, chosen.delete_config)
        if chosen.partitions is not None:
            await add_partitions(admin.cluster, chosen.name, chosen.partitions)

    administer(chosen, alter)
    if chosen.json:
        print_json({"name": chosen.name, "altered": True})
    else:
        print(f"altered topic {chosen.name}")


def _delete(chosen: argparse.Namespace) -> int:
    """Each topic by itself: one that cannot be deleted keeps no other from it."""
    gone: dict[str, bool] = {}
    failures: dict[str, KafkaError] = {}
    for name in chosen.names:
        try:
            gone[name] = _delete_one(chosen, name)
        except KafkaError as error:
            failures[name] = error
    if chosen.json:
        rows = [{"name": name, "deleted": is_gone} for name, is_gone in gone.items()]
        refused = [{"name": name, "error": str(failure)} for name, failure in failures.items()]
        print_json([*rows, *refused])
    else:
        for name, is_gone in gone.items():
            print(f"deleted topic {name}" if is_gone else f"topic {name} does not exist")
    for name, failure in failures.items():
        note(f"barnabas: topic {name}: {failure}")
    return 1 if failures else 0


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


_COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace], int | None]]] = {
    "create": _create,
    "list": _list,
    "describe": _describe,
    "alter": _alter,
    "delete": _delete,
}

"""``barnabas topics``: create, list, describe, alter and delete.

Source: docs/spec/users.md §2.1 (kafka-topics).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic, SettingDescription, TopicDescription
from barnabas.client.admin.topic_changes import add_partitions, alter_settings
from barnabas.client.admin.topic_configs import TOPIC_SOURCE, describe_settings
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.cluster_options import add_cluster_options, administer
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.command_line.failure import Misuse
from barnabas.console.command_line.number_arguments import INT16_MAX, whole_number
from barnabas.console.command_line.output import note, print_json, print_table, shown
from barnabas.console.command_line.setting_arguments import (
    add_alter_options,
    add_config_option,
    check_alter_options,
    not_set,
    print_settings,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.names import FORCE_INTERNAL_CLIENT, is_internal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing that can be done to topics."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    create = add_command(commands, "create", "make a topic")
    create.add_argument("name")
    create.add_argument("--partitions", type=whole_number(1), default=-1, metavar="N")
    create.add_argument(
        "--replication-factor", type=whole_number(1, INT16_MAX), default=-1, metavar="N"
    )
    add_config_option(create)
    create.add_argument("--if-not-exists", action="store_true", help="be content with one there")
    listing = add_command(commands, "list", "name all topics")
    describe = add_command(commands, "describe", "show leaders, replicas and settings of topics")
    describe.add_argument("names", nargs="*", metavar="NAME", help="default: all topics")
    describe.add_argument(
        "--all-settings", action="store_true", help="those at their default value, too"
    )
    alter = add_command(commands, "alter", "add partitions, change settings")
    alter.add_argument("name")
    alter.add_argument(
        "--partitions", type=whole_number(1), metavar="N", help="have so many, more than before"
    )
    add_alter_options(alter)
    delete = add_command(commands, "delete", "remove topics and all their records")
    delete.add_argument("names", nargs="+", metavar="NAME")
    delete.add_argument("--if-exists", action="store_true", help="be content with one not there")
    delete.add_argument(
        "--force-internal",
        action="append",
        default=[],
        metavar="NAME",
        help="the name of an internal topic typed again: with __consumer_offsets goes every "
        "offset of every group",
    )
    for sub in (create, listing, describe, alter, delete):
        add_cluster_options(sub)


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; failures are raised, or reported where a part succeeded: then 1."""
    return _COMMANDS[chosen.command](chosen) or 0


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
    topics, settings = administer(chosen, lambda admin: _described(admin, chosen.names))
    shown_settings = {
        topic: [
            setting_description
            for setting_description in found
            if chosen.all_settings or setting_description.is_set
        ]
        for topic, found in settings.items()
    }
    if chosen.json:
        rows = [asdict(topic) for topic in topics]
        for row in rows:
            row["settings"] = [asdict(description) for description in shown_settings[row["name"]]]
        print_json(rows)
        return
    _print_partitions(topics)
    if any(shown_settings.values()):
        print()
        print_settings("TOPIC", shown_settings)


def _print_partitions(topics: Sequence[TopicDescription]) -> None:
    rows = [
        (
            topic.name,
            partition.partition,
            shown(partition.leader),
            ",".join(map(str, partition.replicas)),
            ",".join(map(str, partition.in_sync)),
        )
        for topic in topics
        for partition in topic.partitions
    ]
    print_table(("TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR"), rows)


async def _described(
    admin: Admin, names: Sequence[str]
) -> tuple[list[TopicDescription], Mapping[str, Sequence[SettingDescription]]]:
    names = list(dict.fromkeys(names))
    topics = await (admin.describe_topics(names) if names else admin.list_topics())
    return topics, await describe_settings(admin.cluster, [topic.name for topic in topics])


def _alter(chosen: argparse.Namespace) -> None:
    if chosen.partitions is None and not chosen.config and not chosen.delete_config:
        raise Misuse("nothing to alter: say --partitions, --config or --delete-config")
    check_alter_options(chosen)
    unset = administer(chosen, lambda admin: _altered(admin, chosen))
    is_altered = bool(chosen.config or chosen.partitions) or len(unset) < len(chosen.delete_config)
    for name in unset:
        note(f"topic {chosen.name}: {name} has no value of its own")
    if chosen.json:
        print_json({"name": chosen.name, "altered": is_altered})
    else:
        print(f"altered topic {chosen.name}" if is_altered else "nothing was changed")


async def _altered(admin: Admin, chosen: argparse.Namespace) -> list[str]:
    """Alter the topic; the settings to be taken back that were not set."""
    settings = await describe_settings(admin.cluster, [chosen.name])
    if chosen.name not in settings:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {chosen.name}")
    unset = not_set(settings[chosen.name], chosen.delete_config, TOPIC_SOURCE, "a topic")
    removed = [name for name in chosen.delete_config if name not in unset]
    if chosen.config or removed:
        await alter_settings(admin.cluster, chosen.name, dict(chosen.config), removed)
    if chosen.partitions is not None:
        await add_partitions(admin.cluster, chosen.name, chosen.partitions)
    return unset


def _delete(chosen: argparse.Namespace) -> int:
    """Each topic by itself: one that cannot be deleted keeps no other from it."""
    if strangers := set(chosen.force_internal) - set(chosen.names):
        raise Misuse(f"--force-internal: {', '.join(sorted(strangers))} is not to be deleted")
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
    """Internal topics are refused here, too: Apache Kafka would delete them."""
    is_forced = name in chosen.force_internal
    if is_internal(name) and not is_forced:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"is internal: what the brokers keep there would be gone. Type its name again to "
            f"delete it: --force-internal {name}",
        )
    identity = {"client_id": FORCE_INTERNAL_CLIENT} if is_forced else {}
    return _unless(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        chosen.if_exists,
        lambda: administer(chosen, lambda admin: admin.delete_topics([name]), **identity),
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

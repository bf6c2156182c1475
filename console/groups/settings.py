"""``barnabas groups settings`` and ``alter``: what single groups are given, what holds for them.

Source: docs/spec/consumer-groups.md §2.6; Kafka 4.1's ``kafka-configs --entity-type groups``.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.topic_configs import GROUP_SOURCE
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.failure import Misuse
from barnabas.console.command_line.output import note, print_json
from barnabas.console.command_line.setting_arguments import (
    add_alter_options,
    check_alter_options,
    not_set,
    print_settings,
)


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    """Which groups."""
    parser.add_argument("names", nargs="+", metavar="GROUP")


def show_settings(chosen: argparse.Namespace) -> int:
    """All settings of groups, whether there are such groups or not."""
    settings = administer(chosen, lambda admin: admin.describe_group_settings(chosen.names))
    if chosen.json:
        rows = [
            {"name": group, "settings": [asdict(description) for description in found]}
            for group, found in settings.items()
        ]
        print_json(rows)
    else:
        print_settings("GROUP", settings)
    return 0


def add_alter_arguments(parser: argparse.ArgumentParser) -> None:
    """Which group, and what it is given or loses."""
    parser.add_argument("name", metavar="GROUP")
    add_alter_options(parser)


def check_alter(chosen: argparse.Namespace) -> None:
    """Raises Misuse for words that say nothing, or contradict each other."""
    if not chosen.config and not chosen.delete_config:
        raise Misuse("nothing to alter: say --config or --delete-config")
    check_alter_options(chosen)


def alter(chosen: argparse.Namespace) -> int:
    """Change settings of one group; they hold from each member's next heartbeat."""
    unset = administer(chosen, lambda admin: _altered(admin, chosen))
    is_altered = bool(chosen.config) or len(unset) < len(chosen.delete_config)
    for name in unset:
        note(f"group {chosen.name}: {name} has no value of its own")
    if chosen.json:
        print_json({"name": chosen.name, "altered": is_altered})
    else:
        print(f"altered group {chosen.name}" if is_altered else "nothing was changed")
    return 0


async def _altered(admin: Admin, chosen: argparse.Namespace) -> list[str]:
    """Alter the group; the settings to be taken back that were not set."""
    settings = (await admin.describe_group_settings([chosen.name]))[chosen.name]
    unset = not_set(settings, chosen.delete_config, GROUP_SOURCE, "a group")
    removed = [name for name in chosen.delete_config if name not in unset]
    if chosen.config or removed:
        await admin.alter_group_settings(chosen.name, dict(chosen.config), removed)
    return unset

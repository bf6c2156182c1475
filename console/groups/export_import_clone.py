"""``barnabas groups export``, ``import`` and ``clone``: offsets from one place to another.

Source: docs/spec/users.md §2.1 (CSV) and §2.3 (rpk's ``--to-group``).
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from barnabas.client.admin.admin import Admin
from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.failure import Misuse
from barnabas.console.command_line.output import note, print_json

from .offsets_csv import Offsets, print_csv, read_csv_file
from .plan import ChangePlan, activity, changes_to, held_by_transactions, missing
from .reset import as_listed
from .scope import TopicScope, add_groups, add_topics, described, is_in_scope

# -- export ---------------------------------------------------------------------------------


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Groups, and perhaps only some topics."""
    add_groups(parser)
    add_topics(parser)


def export(chosen: argparse.Namespace) -> int:
    """Print what groups have committed; 1 when one of them does not exist."""
    found, absent = administer(chosen, lambda admin: _exported(admin, chosen))
    for group in absent:
        note(f"Error: {missing(group)}")
    if chosen.json:
        print_json(
            [
                {
                    "group": group,
                    "topic": topic_partition.topic,
                    "partition": topic_partition.partition,
                    "offset": offset,
                }
                for group, topic_partitions in found.items()
                for topic_partition, offset in topic_partitions.items()
            ]
        )
    else:
        is_single = len(found) + len(absent) == 1 and not chosen.all_groups
        print_csv(found, with_group=not is_single)
    return 1 if absent else 0


async def _exported(
    admin: Admin, chosen: argparse.Namespace
) -> tuple[dict[str, dict[TopicPartition, int]], list[str]]:
    groups = await described(admin, chosen)
    names = [group.group for group in groups if group.exists]
    committed = await asyncio.gather(*map(admin.committed_offsets, names))
    found = {
        name: {
            topic_partition: offsets[topic_partition].offset
            for topic_partition in _within(sorted(offsets), chosen.topics)
        }
        for name, offsets in zip(names, committed, strict=True)
    }
    return found, [group.group for group in groups if not group.exists]


def _within(
    topic_partitions: Iterable[TopicPartition], topics: Sequence[TopicScope]
) -> list[TopicPartition]:
    """Those that lie in ``topics``; all when none is named."""
    return [found for found in topic_partitions if is_in_scope(topics, *found)]


# -- import ---------------------------------------------------------------------------------


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, and the groups of it that are meant."""
    parser.add_argument("file", type=Path, metavar="CSV", help="- for standard input")
    parser.add_argument(
        "--group", dest="names", action="append", default=[], metavar="GROUP",
        help="only this one of the file; or the one that a file without groups is for",
    )  # fmt: skip


def read_import(chosen: argparse.Namespace) -> None:
    """Read the file where no loop runs yet that would hold up Ctrl-C; raises Failure, OSError."""
    chosen.read = read_csv_file(chosen.file, chosen.names)


async def planned_import(admin: Admin, chosen: argparse.Namespace) -> ChangePlan:
    """The offsets of the file, brought within their logs."""
    offsets: dict[str, dict[TopicPartition, int]] = chosen.read
    absent = [name for name in chosen.names if name not in offsets]
    plan = ChangePlan(refusals={name: f"No reset plan for group {name} found" for name in absent})
    wanted = {name: offsets[name] for name in chosen.names or offsets if name in offsets}
    parts = await asyncio.gather(*(_imported(admin, name, wanted) for name in wanted))
    return ChangePlan.of([plan, *parts])


async def _imported(admin: Admin, group: str, offsets: Offsets) -> ChangePlan:
    refusal = activity(await admin.describe_group(group))
    if refusal is not None:
        return ChangePlan(refusals={group: refusal})
    targets, warnings = await as_listed(admin, offsets[group])
    committed = await admin.committed_offsets(group)
    return ChangePlan(changes=changes_to(group, committed, targets, warnings))


# -- clone ----------------------------------------------------------------------------------


def add_clone_arguments(parser: argparse.ArgumentParser) -> None:
    """From whom, to whom, and which topics."""
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("target", metavar="TARGET")
    add_topics(parser)
    parser.add_argument(
        "--allow-new-topics",
        action="store_true",
        help="also topics that TARGET, which has offsets, has committed nothing of",
    )


def check_clone(chosen: argparse.Namespace) -> None:
    """Raises Misuse for a group and itself."""
    if chosen.source == chosen.target:
        raise Misuse("SOURCE and TARGET are the same group")


async def planned_clone(admin: Admin, chosen: argparse.Namespace) -> ChangePlan:
    """What the source has committed, metadata included, for the target.

    A target without offsets takes everything; another one only the topics that it has committed
    something of, unless new ones are allowed.
    """
    source, target = await asyncio.gather(
        admin.describe_group(chosen.source), admin.describe_group(chosen.target)
    )
    refusal = activity(target)
    if refusal is not None:
        return ChangePlan(refusals={target.group: refusal})
    if not source.exists:
        return ChangePlan(refusals={source.group: missing(source.group)})
    offsets, committed = await asyncio.gather(
        admin.committed_offsets(source.group), admin.committed_offsets(target.group)
    )
    topic_partitions = _within(sorted(offsets), chosen.topics)
    known = {topic_partition.topic for topic_partition in committed}
    taken = [
        topic_partition
        for topic_partition in topic_partitions
        if not known or chosen.allow_new_topics or topic_partition.topic in known
    ]
    left = sorted(
        {topic_partition.topic for topic_partition in topic_partitions}
        - {topic_partition.topic for topic_partition in taken}
    )
    notes = [f"left out, new to the target (--allow-new-topics): {', '.join(left)}"] if left else []
    if not offsets:
        notes.append(f"Consumer group '{source.group}' has committed nothing.")
    refusal = held_by_transactions(
        source.group, await admin.unstable_offsets(source.group, taken) if taken else []
    )
    if refusal is not None:
        return ChangePlan(refusals={source.group: refusal})
    changes = changes_to(
        target.group,
        committed,
        {topic_partition: offsets[topic_partition] for topic_partition in taken},
    )
    return ChangePlan(changes=changes, notes=notes)


def clone_summary(chosen: argparse.Namespace) -> str:
    """The command in a few words."""
    return f"clone {chosen.source}"


def import_summary(chosen: argparse.Namespace) -> str:
    """The command in a few words."""
    return f"import {chosen.file.name}"

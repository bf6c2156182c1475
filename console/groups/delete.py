"""``barnabas groups forget`` and ``delete``: offsets of some topics, or groups as a whole.

Source: docs/spec/users.md §2.1 (``--delete-offsets``, ``--delete``); docs/spec/coordinator.md §1.8.
"""

from __future__ import annotations

import argparse
import asyncio

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import GroupDescription
from barnabas.client.cluster import TopicPartition

from .plan import ChangePlan, changes_to, held_by_transactions, missing
from .scope import add_groups, add_topics, described, partitions_of, scope_text


def add_forget_arguments(parser: argparse.ArgumentParser) -> None:
    """One group and the topics that it is to forget."""
    parser.add_argument("group", metavar="GROUP")
    add_topics(parser, required=True)


async def planned_forget(admin: Admin, chosen: argparse.Namespace) -> ChangePlan:
    """Every offset that the group has in these topics."""
    topic_partitions = await partitions_of(admin, chosen.topics)
    group = await admin.describe_group(chosen.group)
    if not group.exists:
        return ChangePlan(refusals={group.group: missing(group.group)})
    # Also of partitions that only a transaction has an offset of: it would come behind the change.
    refusal = held_by_transactions(
        group.group, await admin.unstable_offsets(group.group, topic_partitions)
    )
    if refusal is not None:
        return ChangePlan(refusals={group.group: refusal})
    committed = await admin.committed_offsets(group.group)
    named = {
        TopicPartition(name, index) for name, indexes in chosen.topics for index in indexes or ()
    }
    targets = {
        topic_partition: None
        for topic_partition in topic_partitions
        if topic_partition in committed or topic_partition in named
    }
    notes = [] if targets else [f"Consumer group '{group.group}' has no such offsets."]
    return ChangePlan(changes=changes_to(group.group, committed, targets), notes=notes)


def add_delete_arguments(parser: argparse.ArgumentParser) -> None:
    """The groups."""
    add_groups(parser)


async def planned_delete(admin: Admin, chosen: argparse.Namespace) -> ChangePlan:
    """Everything that these groups have."""
    groups = await described(admin, chosen)
    return ChangePlan.of(await asyncio.gather(*(_deleted(admin, group) for group in groups)))


async def _deleted(admin: Admin, group: GroupDescription) -> ChangePlan:
    if not group.exists:
        return ChangePlan(refusals={group.group: missing(group.group)})
    if group.state != "Empty":
        return ChangePlan(
            refusals={group.group: f"The group is not empty: its state is {group.state}."}
        )
    committed = await admin.committed_offsets(group.group)
    changes = changes_to(group.group, committed, dict.fromkeys(committed))
    return ChangePlan(changes=changes, deleted=[group.group])


def forget_summary(chosen: argparse.Namespace) -> str:
    """The command in a few words."""
    return f"forget {', '.join(map(scope_text, chosen.topics))}"

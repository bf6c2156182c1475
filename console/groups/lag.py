"""``barnabas groups lag``: how far groups are behind, in records and seconds, and what that means.

Kafka's columns come first, as ``groups describe`` prints them; ours follow. Everything is asked
when the command runs: no collector has to have been there before.
Source: docs/spec/users.md §3 (definition, verdicts) and §7, wishes 2 to 5.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.commit_history import History, read_histories
from barnabas.client.admin.descriptions import Progress
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.failure import Misuse
from barnabas.console.command_line.output import note, print_json, print_table, shown
from barnabas.coordinator.group_health import BURROW, Verdict
from barnabas.protocol.errors import ErrorCode

from .partition_lags import GroupLag, PartitionLag, partition_lags

LAG_COLUMNS: Final = ("LAG-SECONDS", "VERDICT", "NOTE")
"""What stands behind Kafka's columns."""
_NO_HISTORY: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What `groups lag` can be told besides the groups and the cluster."""
    parser.add_argument(
        "--max-lag", type=int, metavar="N", help="exit 1 when a group is further behind"
    )
    parser.add_argument(
        "--max-seconds",
        type=float,
        metavar="S",
        help="exit 1 when its oldest unread record is older",
    )


def run(
    chosen: argparse.Namespace, columns: Sequence[str], cells: Callable[[Progress], list[object]]
) -> int:
    """Print how groups stand; 1 when one is missing, or further behind than allowed.

    ``columns`` and ``cells`` are Kafka's part of the table.
    """
    if not chosen.names and not chosen.all_groups:
        raise Misuse("name a group, or say --all-groups")
    partition_lags = administer(chosen, lambda admin: _group_lags(admin, chosen))
    found = [group_lag for group_lag in partition_lags if group_lag.group.exists]
    for group_lag in partition_lags:
        if not group_lag.group.exists:
            note(f"Error: Consumer group '{group_lag.group.group}' does not exist.")
    if chosen.json:
        print_json([as_json(group_lag) for group_lag in found])
    else:
        rows = [
            [*cells(row.progress), *_cells(row)]
            for group_lag in found
            for row in group_lag.partitions
        ]
        if rows:
            print_table((*columns, *LAG_COLUMNS), rows)
    late = [group_lag for group_lag in found if _is_late(group_lag, chosen)]
    for group_lag in found:
        if group_lag.verdict > Verdict.OK or group_lag in late:
            note(
                f"Consumer group '{group_lag.group.group}' is {group_lag.verdict.name}, "
                f"lag {group_lag.records}."
            )
    return 1 if late or len(found) < len(partition_lags) else 0


async def _group_lags(admin: Admin, chosen: argparse.Namespace) -> list[GroupLag]:
    names = chosen.names or [group.group for group in await admin.list_groups()]
    groups = await asyncio.gather(*map(admin.describe_group, names))
    histories = await histories_if_readable(
        admin, [group.group for group in groups if group.exists]
    )
    return [
        GroupLag(
            group,
            await partition_lags(admin, group, histories.get(group.group)) if group.exists else [],
        )
        for group in groups
    ]


async def histories_if_readable(admin: Admin, groups: Sequence[str]) -> Mapping[str, History]:
    """What the groups committed lately; nothing for who may not read the offsets topic."""
    try:
        return await read_histories(admin, groups, commits=BURROW.commits)
    except KafkaError as error:
        if error.code not in _NO_HISTORY:
            raise
        return {}


def _is_late(standing: GroupLag, chosen: argparse.Namespace) -> bool:
    too_many = chosen.max_lag is not None and standing.records > chosen.max_lag
    seconds = standing.seconds
    return too_many or (
        chosen.max_seconds is not None and seconds is not None and seconds > chosen.max_seconds
    )


def _cells(row: PartitionLag) -> list[object]:
    seconds = None if row.seconds is None else f"{row.seconds:.3f}"
    verdict = None if row.verdict is Verdict.NOTFOUND else row.verdict.name
    return [shown(seconds), shown(verdict), shown(row.note)]


def as_json(standing: GroupLag) -> dict[str, Any]:
    """One group for programs."""
    return {
        "group": standing.group.group,
        "state": standing.group.state,
        "verdict": standing.verdict.name,
        "lag": standing.records,
        "lag_seconds": standing.seconds,
        "partitions": [_partition_as_json(partition) for partition in standing.partitions],
    }


def _partition_as_json(row: PartitionLag) -> dict[str, Any]:
    progress, member = row.progress, row.progress.member
    return {
        "topic": progress.topic,
        "partition": progress.partition,
        "current_offset": progress.current_offset,
        "log_start_offset": progress.log_start_offset,
        "log_end_offset": progress.log_end_offset,
        "lag": row.lag and row.lag.records,
        "lag_seconds": row.seconds,
        "verdict": row.verdict.name,
        "is_below_log_start": row.lag and row.lag.is_below_log_start,
        "is_beyond_end": row.lag and row.lag.is_beyond_end,
        "consumer_id": member and member.member_id,
        "host": member and member.host,
        "client_id": member and member.client_id,
    }

"""``barnabas groups history``: who moved which offset, when and why.

Source: docs/spec/coordinator.md §3.8; docs/spec/users.md §7, wish 8.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.audit_history import read_audit
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.output import note, print_json, print_table, shown
from barnabas.protocol.audit_topic import AuditRecord

from .scope import add_topics, is_in_scope
from .time_arguments import datetime_ms, time_text

COLUMNS: Final = (
    "TIME",
    "CHANGE",
    "GROUP",
    "TOPIC",
    "PARTITION",
    "OLD-OFFSET",
    "NEW-OFFSET",
    "ACTION",
    "PRINCIPAL",
    "HOST",
    "REASON",
)


def add_history_arguments(parser: argparse.ArgumentParser) -> None:
    """What to show of it."""
    parser.add_argument("names", nargs="*", metavar="GROUP", help="default: all groups")
    add_topics(parser)
    parser.add_argument(
        "--since", type=datetime_ms, metavar="YYYY-MM-DDTHH:mm:SS.sss", help="only from then on"
    )
    parser.add_argument("--change", metavar="ID", help="only this change")
    parser.add_argument(
        "--limit", type=whole_number(1), metavar="N", help="only the latest N offsets that changed"
    )


def history(chosen: argparse.Namespace) -> int:
    """Print what is recorded of changes, the oldest first."""
    found = _once(administer(chosen, lambda admin: _recorded_of(admin, chosen)))
    if chosen.limit is not None:
        found = found[-chosen.limit :]
    if chosen.json:
        print_json([asdict(record) for record in found])
    elif found:
        print_table(COLUMNS, [_row(record) for record in found])
    else:
        note("no change of offsets is recorded")
    return 0


async def _recorded_of(admin: Admin, chosen: argparse.Namespace) -> list[AuditRecord]:
    return await read_audit(
        admin, lambda record: _is_asked_for(record, chosen), since_ms=chosen.since
    )


def _once(records: Iterable[AuditRecord]) -> list[AuditRecord]:
    """Without the repetitions of a writer that was not sure."""
    return list(dict.fromkeys(records))


def _is_asked_for(record: AuditRecord, chosen: argparse.Namespace) -> bool:
    return (
        (record.group in chosen.names if chosen.names else bool(record.group))
        and (chosen.change is None or record.change == chosen.change)
        and is_in_scope(chosen.topics, record.topic, record.partition)
    )


def _row(record: AuditRecord) -> list[object]:
    return [
        time_text(record.time_ms),
        record.change or "-",
        record.group,
        record.topic,
        record.partition,
        shown(record.old_offset),
        shown(record.new_offset),
        record.action,
        record.principal,
        record.host,
        record.reason or f"client {record.client_id}",
    ]

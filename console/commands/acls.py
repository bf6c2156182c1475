"""``barnabas acls``: what kafka-acls does, over the protocol: list, add and remove entries.

Source: docs/spec/security.md §9 (S78).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.console.acls import entries
from barnabas.console.command_line.cluster_options import add_cluster_options, administer
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.command_line.output import note, print_json, print_table
from barnabas.protocol.acl import AclBinding, AclFilter

COLUMNS: Final = ("TYPE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing that can be done."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    listing = add_command(commands, "list", "show entries: all, or those on what is named")
    entries.add_resource_options(listing, is_filter=True)
    listing.add_argument(
        "--principal", action="append", default=[], metavar="User:NAME",
        help="only those about this one; may be repeated",
    )  # fmt: skip
    adding = add_command(commands, "add", "add entries; those that are there already stay")
    entries.add_resource_options(adding, is_filter=False)
    entries.add_entry_options(adding)
    removing = add_command(
        commands, "remove", "remove entries; all on a resource where no principal is named"
    )
    entries.add_resource_options(removing, is_filter=True)
    entries.add_entry_options(removing)
    removing.add_argument(
        "--dry-run", action="store_true", help="show what would be removed, and remove nothing"
    )
    for sub in (listing, adding, removing):
        add_cluster_options(sub)


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed."""
    return {"list": _list, "add": _add, "remove": _remove}[chosen.command](chosen)


def _list(chosen: argparse.Namespace) -> int:
    wanted = entries.filters(chosen)
    _show(chosen, administer(chosen, lambda admin: _found(admin, wanted)))
    return 0


def _add(chosen: argparse.Namespace) -> int:
    wanted = entries.bindings(chosen)
    administer(chosen, lambda admin: admin.create_acls(wanted))
    _show(chosen, sorted(wanted))
    return 0


def _remove(chosen: argparse.Namespace) -> int:
    wanted = entries.removals(chosen)
    if chosen.dry_run:
        removed = administer(chosen, lambda admin: _found(admin, wanted))
    else:
        removed = administer(chosen, lambda admin: admin.delete_acls(wanted))
    _show(chosen, removed)
    if not removed:
        note("barnabas: no such entry")
    return 0


async def _found(admin: Admin, wanted: Sequence[AclFilter]) -> list[AclBinding]:
    found: set[AclBinding] = set()
    for one in wanted:
        found.update(await admin.describe_acls(one))
    return sorted(found)


def _show(chosen: argparse.Namespace, bindings: Sequence[AclBinding]) -> None:
    if chosen.json:
        print_json([dict(zip(_KEYS, _cells(one), strict=True)) for one in bindings])
    elif bindings:
        print_table(COLUMNS, list(map(_cells, bindings)))


_KEYS: Final = (
    "resourceType",
    "name",
    "patternType",
    "principal",
    "host",
    "operation",
    "permissionType",
)


def _cells(binding: AclBinding) -> tuple[str, ...]:
    (kind, name, pattern), acl = binding
    return (
        *(kind.word, name, pattern.word, acl.principal, acl.host),
        *(acl.operation.word, acl.permission.word),
    )

"""``barnabas quotas``: what kafka-configs does for users, clients and ips.

Source: docs/spec/security.md §4 and §9 (S78).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from barnabas.client.admin.quotas import Entity, QuotaDescription, alter_quotas, describe_quotas
from barnabas.console.command_line.cluster_options import add_cluster_options, administer
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.command_line.failure import Misuse
from barnabas.console.command_line.output import print_json, print_table

DEFAULT: Final = "<default>"
"""How whoever has no quota of its own is shown, as kafka-configs does."""
_KINDS: Final = (("user", "user"), ("client-id", "client_id"), ("ip", "ip"))
"""Kafka's name of each type, and that of its option."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing that can be done."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    listing = add_command(commands, "list", "show the quotas of all, or of those named")
    change = add_command(commands, "set", "set and take back quotas of a user, client id or ip")
    change.add_argument(
        "--config",
        action="append",
        type=quota,
        default=[],
        metavar="NAME=VALUE",
        help="producer_byte_rate, consumer_byte_rate, request_percentage, "
        "controller_mutation_rate; of an ip: connection_creation_rate",
    )
    change.add_argument(
        "--delete-config", action="append", default=[], metavar="NAME", help="no such quota"
    )
    for sub in (listing, change):
        for kind, field in _KINDS:
            named = sub.add_mutually_exclusive_group()
            named.add_argument(f"--{kind}", metavar="NAME", dest=field)
            named.add_argument(
                f"--default-{kind}",
                action="store_true",
                dest=f"default_{field}",
                help=f"whatever {kind} has no quota of its own",
            )
        add_cluster_options(sub)


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; failures are raised."""
    if chosen.command == "list":
        _list(chosen)
    else:
        _set(chosen)
    return 0


def quota(text: str) -> tuple[str, float]:
    """``name=value`` as a pair."""
    name, equals, value = text.partition("=")
    try:
        if equals and name:
            return name, float(value)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text} must read NAME=NUMBER")


def _list(chosen: argparse.Namespace) -> None:
    entity = _entity(chosen)
    found = administer(chosen, lambda admin: describe_quotas(admin.cluster, entity))
    found.sort(key=lambda one: [(kind, name or "") for kind, name in one.entity.items()])
    if chosen.json:
        print_json([{"entity": one.entity, "quotas": one.quotas} for one in found])
    else:
        _print(found)


def _print(found: Sequence[QuotaDescription]) -> None:
    rows = [
        (*(_shown(one.entity, kind) for kind, _ in _KINDS), key, f"{value:.15g}")
        for one in found
        for key, value in sorted(one.quotas.items())
    ]
    print_table(("USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"), rows)


def _shown(entity: Entity, kind: str) -> str:
    if kind not in entity:
        return "-"
    name = entity[kind]
    return DEFAULT if name is None else name


def _set(chosen: argparse.Namespace) -> None:
    entity, removed = _entity(chosen), list(dict.fromkeys(chosen.delete_config))
    if not entity:
        raise Misuse("name a user, a client id, both, or an ip; or say --default-user and so on")
    if not chosen.config and not removed:
        raise Misuse("nothing to set: say --config or --delete-config")
    both = sorted({name for name, _ in chosen.config} & set(removed))
    if both:
        raise Misuse(f"{both[0]}: say --config or --delete-config, not both")
    quotas = dict(chosen.config)
    administer(chosen, lambda admin: alter_quotas(admin.cluster, entity, quotas, removed))
    if chosen.json:
        print_json({"entity": entity, "set": quotas, "deleted": removed})
    else:
        names = ", ".join(f"{kind} {_shown(entity, kind)}" for kind in entity)
        print(f"changed the quotas of {names}")


def _entity(chosen: argparse.Namespace) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for kind, field in _KINDS:
        name = getattr(chosen, field)
        if name is not None or getattr(chosen, f"default_{field}"):
            entity[kind] = name
    return entity

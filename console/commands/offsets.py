"""``barnabas offsets migrate``: offsets of groups at rest, from ZooKeeper to Kafka or back.

Source: docs/spec/coordinator.md §6.8; docs/client/migration.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeVar

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.offset_migration import KAFKA, ZOOKEEPER, StoredOffsets, row
from barnabas.client.admin.offset_migration_stores import BothStores
from barnabas.console.command_line.cluster_options import add_cluster_options, administer
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.command_line.failure import Misuse
from barnabas.console.command_line.output import print_json, print_table, shown
from barnabas.console.command_line.zookeeper_options import (
    add_zookeeper_option,
    with_zookeeper,
    zookeeper_of,
)
from barnabas.console.offsets.migration import (
    MigrationResult,
    apply_plan,
    make_plan,
    roll_back,
    verify,
)

T = TypeVar("T")

_COLUMNS: Final = ("GROUP", "TOPIC", "PARTITION", "ZOOKEEPER", "KAFKA", "STEP", "WRITE")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``migrate`` and its four steps."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    migrate = add_command(commands, "migrate", "move offsets between ZooKeeper and Kafka")
    steps = migrate.add_subparsers(dest="step", metavar="STEP", required=True)
    plan = add_command(steps, "plan", "read both stores, write down what would be done")
    plan.add_argument("--group", action="append", default=[], metavar="GROUP", dest="groups")
    plan.add_argument("--all-groups", action="store_true", help="all that ZooKeeper knows")
    plan.add_argument("--to", choices=(KAFKA, ZOOKEEPER), default=KAFKA)
    plan.add_argument(
        "--source-wins",
        action="store_true",
        help="write the source's offset even where the other store has a larger one",
    )
    plan.set_defaults(work=_plan)
    for name, meaning, work in (
        ("apply", "do it; may be repeated until all is done", _apply),
        ("rollback", "take the groups back to the store they came from", _rollback),
    ):
        sub = add_command(steps, name, meaning)
        sub.add_argument(
            "--even-if-live", action="store_true", help="though somebody may commit meanwhile"
        )
        sub.set_defaults(work=work)
    add_command(steps, "verify", "compare both stores now").set_defaults(work=_verify)
    for sub in steps.choices.values():
        sub.add_argument("file", type=Path, metavar="FILE", help="the plan")
        add_zookeeper_option(sub)
        add_cluster_options(sub)


def run(chosen: argparse.Namespace) -> int:
    """Do one step; 0 when every group is where it should be."""
    code: int = chosen.work(chosen)
    return code


def _plan(chosen: argparse.Namespace) -> int:
    if bool(chosen.groups) == chosen.all_groups:
        raise Misuse("name groups with --group, or say --all-groups")
    plan = _with_stores(
        chosen,
        lambda stores: make_plan(
            stores, chosen.file, chosen.groups, chosen.to, source_wins=chosen.source_wins
        ),
    )
    rows = _rows(
        [offset for held in plan.held.values() for offset in held], plan.to, plan.source_wins
    )
    _print_rows(rows, chosen.json)
    return 0


def _apply(chosen: argparse.Namespace) -> int:
    return _print_outcomes(
        _with_stores(
            chosen, lambda stores: apply_plan(stores, chosen.file, even_if_live=chosen.even_if_live)
        ),
        chosen.json,
    )


def _rollback(chosen: argparse.Namespace) -> int:
    return _print_outcomes(
        _with_stores(
            chosen, lambda stores: roll_back(stores, chosen.file, even_if_live=chosen.even_if_live)
        ),
        chosen.json,
    )


def _verify(chosen: argparse.Namespace) -> int:
    plan, held = _with_stores(chosen, lambda stores: verify(stores, chosen.file))
    rows = _rows(held, plan.to, False)
    for found, cells in zip(held, rows, strict=True):
        cells["behind"] = found.is_behind(plan.to)
    _print_rows(rows, chosen.json)
    return int(any(cells["behind"] for cells in rows))


def _with_stores(chosen: argparse.Namespace, work: Callable[[BothStores], Awaitable[T]]) -> T:
    servers = zookeeper_of(chosen)

    async def connected(admin: Admin) -> T:
        return await with_zookeeper(
            servers, chosen, lambda session: work(BothStores(session, admin))
        )

    return administer(chosen, connected)


def _rows(held: Sequence[StoredOffsets], to: str, source_wins: bool) -> list[dict[str, Any]]:
    return [{"group": offset.group, **row(offset, to, source_wins=source_wins)} for offset in held]


def _print_rows(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
    elif rows:
        names = [name.lower() for name in _COLUMNS]
        print_table(_COLUMNS, [[shown(cells[name]) for name in names] for cells in rows])


def _print_outcomes(outcomes: Sequence[MigrationResult], as_json: bool) -> int:
    if as_json:
        print_json([asdict(outcome) for outcome in outcomes])
    elif outcomes:
        print_table(
            ("GROUP", "STATE", "WRITTEN", "WHY"),
            [
                (outcome.group, outcome.state, outcome.written, shown(outcome.why))
                for outcome in outcomes
            ],
        )
    return int(not all(outcome.is_good for outcome in outcomes))

"""``barnabas partitions move``, ``moves`` and ``cancel``: partitions are given other replicas.

    plan      who has a copy now, who is to have one, how much is copied
    undo      the replicas as they are, on the disk before anything begins
    throttle  set before, taken back behind
    move      AlterPartitionReassignments, then wait and say how far it is

Source: docs/spec/console.md §7; docs/spec/cluster.md §2.12; KIP-455.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.partition_admin import (
    alter_reassignments,
    ongoing_moves,
    sizes_on,
)
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.failure import Failure, Misuse
from barnabas.console.command_line.number_arguments import INT32_MAX, whole_number
from barnabas.console.command_line.output import note, print_json, print_table

from .assignments import Assignment, read_assignment, write_undo
from .leader_change import add_change_options
from .placements import (
    REFUSED,
    Placement,
    Placements,
    add_scope,
    in_scope,
    listed,
    live_nodes,
    named,
    placements,
    rank,
    reasons,
    require_up,
)
from .throttle import clear_throttle, set_throttle
from .waiting import in_bytes, wait_for

COLUMNS: Final = ("TOPIC", "PARTITION", "REPLICAS", "NEW-REPLICAS", "COPIES")
_AT_ONCE: Final = 100
_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """One partition and the replicas that it is to have."""

    before: Placement
    replicas: tuple[int, ...]
    bytes: int = 0
    """What one copy has, as its leader told; 0 where nobody did."""

    @property
    def place(self) -> TopicPartition:
        """Which partition."""
        return self.before.place

    @property
    def adding(self) -> list[int]:
        """Who has no copy yet."""
        return [node for node in self.replicas if node not in self.before.replicas]


@dataclass(slots=True)
class MovePlan:
    """What is to be moved, and what became of it."""

    moves: list[ReplicaMove]
    refused: dict[TopicPartition, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    is_executed: bool = False
    undo_file: Path | None = None
    errors: dict[TopicPartition, str] = field(default_factory=dict)
    left: set[TopicPartition] = field(default_factory=set)
    """Moves that go on though nobody waits for them any more."""

    @property
    def is_good(self) -> bool:
        """Whether all that was asked for can be done, or is."""
        return not (self.refused or self.errors or self.left)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which partitions, and where they are to go."""
    add_scope(parser, "these partitions; with --replace every one where none is named")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument(
        "--replicas", type=node_list, metavar="NODE,NODE,...",
        help="exactly these; the first is the preferred leader",
    )  # fmt: skip
    way.add_argument(
        "--replace", type=replacement, metavar="OLD=NEW", help="NEW wherever OLD has a copy"
    )
    way.add_argument(
        "--from-file", type=Path, metavar="FILE",
        help="as kafka-reassign-partitions or an undo file has it",
    )  # fmt: skip
    add_change_options(parser)
    add_copy_options(parser)


def add_copy_options(parser: argparse.ArgumentParser) -> None:
    """``--throttle``, ``--wait``: what every command has that copies."""
    parser.add_argument(
        "--throttle", type=whole_number(1, 2**63 - 1), metavar="BYTES",
        help="let each node send and take so many bytes a second for it; taken back at the end",
    )  # fmt: skip
    parser.add_argument(
        "--wait", type=whole_number(0, INT32_MAX), metavar="SECONDS",
        help="give up waiting after this, the moves go on (default: wait; 0: do not)",
    )  # fmt: skip


def node_list(text: str) -> tuple[int, ...]:
    """``1,2,3``; a type for argparse."""
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and int(word) <= INT32_MAX for word in words):
        raise argparse.ArgumentTypeError(f"{text} must read NODE,NODE,... with numbers")
    found = tuple(map(int, words))
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"{text} names a node twice")
    return found


def replacement(text: str) -> tuple[int, int]:
    """``3=4``; a type for argparse."""
    words = text.split("=")
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        raise argparse.ArgumentTypeError(f"{text} must read OLD=NEW with numbers")
    return int(words[0]), int(words[1])


def check(chosen: argparse.Namespace) -> None:
    """Raises Misuse for what contradicts itself; reads what is given as a file."""
    if chosen.replicas is not None and not chosen.topics:
        raise Misuse("--replicas: name the partitions that are to be there")
    if chosen.from_file is not None:
        if chosen.topics:
            raise Misuse("--from-file names the partitions: say none besides")
        chosen.read = read_assignment(chosen.from_file)


def run(chosen: argparse.Namespace) -> int:
    """Move, or show what would be moved; 1 when a part of it cannot be, or is not done."""

    async def work(admin: Admin) -> MovePlan:
        known = await placements(admin)
        return await carry_out(admin, chosen, known, _wanted(chosen, known))

    return show(chosen, administer(chosen, work))


def _wanted(chosen: argparse.Namespace, known: Placements) -> Assignment:
    if chosen.from_file is not None:
        for place in chosen.read:
            if place not in known:
                raise Failure(f"{named(place)} does not exist")
        read: Assignment = chosen.read
        return read
    found = in_scope(known, chosen.topics)
    if chosen.replicas is not None:
        return {one.place: chosen.replicas for one in found}
    old, new = chosen.replace
    return {
        one.place: tuple(new if node == old else node for node in one.replicas)
        for one in found
        if old in one.replicas
    }


async def carry_out(
    admin: Admin, chosen: argparse.Namespace, known: Placements, wanted: Assignment
) -> MovePlan:
    """Plan and, if ``--execute`` was said, do it. Raises Failure, KafkaError."""
    up = await live_nodes(admin)
    require_up((node for replicas in wanted.values() for node in replicas), up)
    plan = await _planned(admin, known, wanted)
    if not chosen.execute or not plan.moves:
        return plan
    before = {move.place: move.before.replicas for move in plan.moves}
    plan.undo_file = write_undo(chosen.undo_file, before)
    note(f"{plan.undo_file} has the replicas as they were")
    copies = {move.place: (move.before.replicas, move.adding) for move in plan.moves if move.adding}
    try:
        if chosen.throttle is not None and copies:
            await set_throttle(admin, copies, chosen.throttle)
        plan.is_executed = True
        await _in_stages(admin, chosen, plan)
    except KafkaError as error:
        if error.code in REFUSED:  # nothing was begun: the file would put back what is there
            plan.undo_file.unlink()
        raise
    if chosen.throttle is not None and copies and not plan.left:
        nodes = {node for pair in copies.values() for side in pair for node in side}
        await clear_throttle(admin, {place.topic for place in copies}, nodes)
    return plan


async def _planned(admin: Admin, known: Placements, wanted: Assignment) -> MovePlan:
    ongoing = await ongoing_moves(admin.cluster)
    plan = MovePlan([])
    for place, replicas in sorted(wanted.items()):
        before = known[place]
        if len(set(replicas)) < len(replicas):
            plan.refused[place] = "a node stands there twice"
        elif tuple(replicas) == before.replicas and place not in ongoing:
            continue
        elif place in ongoing:
            plan.refused[place] = "it is being moved: wait, or `barnabas partitions cancel` it"
        else:
            plan.moves.append(ReplicaMove(before, tuple(replicas)))
    ordered = sorted(plan.moves, key=lambda move: (rank(move.place.topic), move.place))
    plan.moves = await _with_sizes(admin, ordered)
    plan.notes = list(dict.fromkeys(_notes(plan.moves)))
    return plan


async def _with_sizes(admin: Admin, moves: Sequence[ReplicaMove]) -> list[ReplicaMove]:
    """Each with what one copy of it has."""
    copying = [move for move in moves if move.adding and move.before.leader is not None]
    leaders = {move.before.leader for move in copying if move.before.leader is not None}
    sizes = await sizes_on(admin.cluster, leaders, [move.place for move in copying])
    found = []
    for move in moves:
        size = sizes.get(move.before.leader, {}).get(move.place) if move.adding and (
            move.before.leader is not None
        ) else None  # fmt: skip
        found.append(ReplicaMove(move.before, move.replicas, 0 if size is None else size.bytes))
    return found


def _notes(moves: Sequence[ReplicaMove]) -> list[str]:
    said = []
    for move in moves:
        had, has = len(move.before.replicas), len(move.replicas)
        if had != has:
            said.append(f"Warn: {move.place.topic} has {had} replicas and is to have {has}")
        if move.before.leader is None:
            said.append(f"Warn: {named(move.place)} has no leader: its move waits for one")
    return said


async def _in_stages(admin: Admin, chosen: argparse.Namespace, plan: MovePlan) -> None:
    """Plain topics first, then who coordinates transactions, then who keeps offsets.

    A stage begins when the one before it is done: whatever goes wrong is seen where it costs least.
    """
    deadline = None if chosen.wait is None else time.monotonic() + chosen.wait
    for _, stage in groupby(plan.moves, lambda move: rank(move.place.topic)):
        moves = list(stage)
        if chosen.wait != 0 and (plan.errors or plan.left):
            plan.errors |= {
                move.place: "not tried, since others before it failed, or are not done"
                for move in moves
            }
            continue
        await _begin(admin, plan, moves)
        begun = {move.place for move in moves if move.place not in plan.errors}
        wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        plan.left |= await wait_for(admin, begun, note, wait_s=wait_s)
    await _verify(admin, plan)


async def _begin(admin: Admin, plan: MovePlan, moves: Sequence[ReplicaMove]) -> None:
    """Some at a time; a request that is refused as a whole ends it, unless a part was begun."""
    for start in range(0, len(moves), _AT_ONCE):
        pack = moves[start : start + _AT_ONCE]
        wishes = {move.place: move.replicas for move in pack}
        try:
            outcomes = await alter_reassignments(admin.cluster, wishes)
        except KafkaError as error:
            if moves[start] is plan.moves[0]:
                raise
            plan.errors |= {move.place: str(error) for move in moves[start:]}
            return
        plan.errors |= {place: str(error) for place, error in outcomes.items() if error is not None}


async def _verify(admin: Admin, plan: MovePlan) -> None:
    """Read again until the node that is asked has heard of it, too; what is not so in time."""
    done = [move for move in plan.moves if _is_done(plan, move)]
    deadline = time.monotonic() + admin.cluster.config.api_timeout_ms / 1000
    while True:
        after = await placements(admin)
        wrong = {
            move.place: f"read again, it is on nodes {listed(after[move.place].replicas)}"
            for move in done
            if move.place in after and after[move.place].replicas != move.replicas
        }
        if not wrong or time.monotonic() >= deadline:
            plan.errors |= wrong
            return
        await asyncio.sleep(_LOOK_S)


def show(chosen: argparse.Namespace, plan: MovePlan) -> int:
    """Print what is planned or done; 1 when something of it cannot be, failed, or goes on."""
    if chosen.json:
        print_json(document(plan))
    elif plan.moves:
        _print(plan)
    for text in plan.notes:
        note(text)
    for line in reasons({**plan.refused, **plan.errors}):
        note(line)
    note(_conclusion(chosen, plan))
    return 0 if plan.is_good else 1


def document(plan: MovePlan) -> dict[str, Any]:
    """What is planned or done, for programs."""
    return {
        "executed": plan.is_executed,
        "undo_file": None if plan.undo_file is None else str(plan.undo_file),
        "partitions": [
            {
                "topic": move.place.topic,
                "partition": move.place.partition,
                "replicas": list(move.before.replicas),
                "new_replicas": list(move.replicas),
                "bytes": move.bytes * len(move.adding),
                "done": _is_done(plan, move),
                "error": plan.errors.get(move.place),
            }
            for move in plan.moves
        ],
        "refused": [
            {"topic": place.topic, "partition": place.partition, "error": why}
            for place, why in sorted(plan.refused.items())
        ],
    }


def _is_done(plan: MovePlan, move: ReplicaMove) -> bool:
    return plan.is_executed and move.place not in plan.left and move.place not in plan.errors


def _print(plan: MovePlan) -> None:
    rows: list[list[object]] = [
        [
            move.place.topic,
            move.place.partition,
            listed(move.before.replicas),
            listed(move.replicas),
            in_bytes(move.bytes * len(move.adding)) if move.adding else "-",
        ]
        for move in plan.moves
    ]
    if plan.is_executed:
        for row, move in zip(rows, plan.moves, strict=True):
            row.append(_status(plan, move))
    print_table([*COLUMNS, *(["STATUS"] if plan.is_executed else [])], rows)


def _status(plan: MovePlan, move: ReplicaMove) -> str:
    if move.place in plan.errors:
        return "Error"
    return "under way" if move.place in plan.left else "done"


def _conclusion(chosen: argparse.Namespace, plan: MovePlan) -> str:
    if plan.undo_file is not None:
        undo = f"`barnabas partitions move --from-file {plan.undo_file} --execute` undoes it"
        if plan.left:
            kept = " and its throttle stays" if chosen.throttle is not None else ""
            shows = "`barnabas partitions moves` shows them"
            return f"{len(plan.left)} moves go on{kept}: {shows}; {undo}"
        return undo if plan.errors else f"done; {undo}"
    if plan.moves:
        what = "does the rest" if plan.refused else "does it"
        return f"dry run: nothing was changed; --execute {what}"
    return "nothing was changed" if plan.refused else "nothing to move: it is so already"

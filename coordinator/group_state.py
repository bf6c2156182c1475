"""The states of a group as a table: what follows what, and what each answers.

Source: docs/spec/coordinator.md §1.5 and §5.1. Pure; the drawing in docs/coordinator.md is made
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.protocol.errors import ErrorCode


class GroupState(Enum):
    """Where a group stands; the value is Kafka's name for it, as clients are told."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.PREPARING: frozenset({GroupState.COMPLETING, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING: frozenset({GroupState.STABLE, GroupState.PREPARING, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.DEAD: frozenset({GroupState.DEAD}),
}


@dataclass(frozen=True, slots=True)
class StateRules:
    """What a state answers to a request that is otherwise in order; NONE lets it pass."""

    sync: ErrorCode
    heartbeat: ErrorCode
    commit: ErrorCode
    delete: ErrorCode
    may_rebalance: bool


RULES: Final[Mapping[GroupState, StateRules]] = {
    GroupState.EMPTY: StateRules(
        sync=ErrorCode.UNKNOWN_MEMBER_ID,
        heartbeat=ErrorCode.UNKNOWN_MEMBER_ID,
        commit=ErrorCode.NONE,
        delete=ErrorCode.NONE,
        may_rebalance=True,
    ),
    GroupState.PREPARING: StateRules(
        sync=ErrorCode.REBALANCE_IN_PROGRESS,
        heartbeat=ErrorCode.REBALANCE_IN_PROGRESS,
        commit=ErrorCode.NONE,
        delete=ErrorCode.NON_EMPTY_GROUP,
        may_rebalance=False,
    ),
    GroupState.COMPLETING: StateRules(
        sync=ErrorCode.NONE,
        heartbeat=ErrorCode.NONE,
        commit=ErrorCode.REBALANCE_IN_PROGRESS,
        delete=ErrorCode.NON_EMPTY_GROUP,
        may_rebalance=True,
    ),
    GroupState.STABLE: StateRules(
        sync=ErrorCode.NONE,
        heartbeat=ErrorCode.NONE,
        commit=ErrorCode.NONE,
        delete=ErrorCode.NON_EMPTY_GROUP,
        may_rebalance=True,
    ),
    GroupState.DEAD: StateRules(
        sync=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        heartbeat=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        commit=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        delete=ErrorCode.GROUP_ID_NOT_FOUND,
        may_rebalance=False,
    ),
}


def drawing() -> str:
    """The table :data:`NEXT` as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {GroupState.EMPTY.value}"]
    for state in GroupState:
        lines += [
            f"    {state.value} --> {after.value}"
            for after in GroupState
            if after in NEXT[state] and after is not state
        ]
    return "\n".join([*lines, f"    {GroupState.DEAD.value} --> [*]"])

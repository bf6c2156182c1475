"""What was planned and shown, and waits for its reader to say yes.

A plan belongs to one session, is good for one try, and is forgotten with the session.
Source: docs/spec/console.md §0 (decision 5) and §2.3.
"""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.console.groups.apply_plan import ChangeResult
from barnabas.console.web.session import Session

PLANS_MOST: Final = 8
RESULTS_MOST: Final = 32
GOOD_FOR_S: Final = 30 * 60.0


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A change of offsets of one group; ``command`` names it in the history."""

    id: str
    group: str
    command: str
    result: ChangeResult
    chosen: argparse.Namespace
    url: str
    """Where it can be planned anew."""
    typed: str | None = None
    """What has to be typed before it is done."""
    at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class SettingPlan:
    """One setting of one topic; None for its default."""

    id: str
    topic: str
    name: str
    old: str | None
    """None where the topic itself had no value."""
    new: str | None
    shown_old: str | None
    """The value that holds, wherever it came from."""
    url: str
    at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class OperationPlan:
    """A change of the cluster that was shown: its fields, and what it would do by them."""

    id: str
    path: str
    values: Mapping[str, str]
    rows: Sequence[Mapping[str, object]]
    url: str
    at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a change of the cluster."""

    change: str
    summary: str
    rows: Sequence[Mapping[str, object]]
    problem: str
    """Why it is not as planned; empty when it was read again and is."""
    undo_url: str
    back: str


Plan = GroupPlan | SettingPlan | OperationPlan


def new_id() -> str:
    """What tells a plan from all others; nobody can guess it."""
    return secrets.token_urlsafe(16)


def keep(session: Session, plan: Plan) -> None:
    """Remember a plan that is shown; the oldest makes room."""
    session.plans[plan.id] = plan
    while len(session.plans) > PLANS_MOST:
        session.plans.popitem(last=False)


def take(session: Session, form: Mapping[str, str]) -> Plan | None:
    """The plan of a form, once; None for one that was used, forgotten, or is too old."""
    plan = session.plans.pop(form.get("plan", ""), None)
    if not isinstance(plan, Plan):
        return None
    return plan if time.monotonic() - plan.at <= GOOD_FOR_S else None


def keep_result(session: Session, result: GroupPlan | Done) -> None:
    """Remember what became of a plan, for the page about it."""
    change = result.change if isinstance(result, Done) else result.result.change_id
    session.results[change] = result
    while len(session.results) > RESULTS_MOST:
        session.results.popitem(last=False)


def result_of(session: Session, change_id: str) -> GroupPlan | None:
    """What became of a change that this session made."""
    found = session.results.get(change_id)
    return found if isinstance(found, GroupPlan) else None


def done_of(session: Session, change_id: str) -> Done | None:
    """What became of a change of the cluster that this session made."""
    found = session.results.get(change_id)
    return found if isinstance(found, Done) else None

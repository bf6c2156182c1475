"""Does what a plan says, over a connection that names the change, and reads what came of it.

Source: docs/spec/console.md §0 (decision 5), §2.2 and §3 (change and reason travel in the client
id).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed
from barnabas.client.admin.topic_changes import alter_settings
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.client.os_errors import describe_os_error
from barnabas.console.command_line.failure import Failure
from barnabas.console.groups.apply_plan import execute_plan
from barnabas.console.groups.plan import as_json, offset_of
from barnabas.console.web.page import View
from barnabas.console.web.watch.reading import now_ms
from barnabas.protocol.audit_topic import tool_client_id

from .pending import GroupPlan, SettingPlan

log = logging.getLogger(__name__)

REASON_MOST: Final = 300
_MODE: Final = 0o600


class MovedOn(Exception):  # noqa: N818 - says what happened
    """An offset is no longer where the plan found it; the text says which."""


async def apply_group_plan(view: View, plan: GroupPlan, reason: str) -> None:
    """Do it; the plan's result tells what became of it.

    Raises MovedOn when somebody committed since, Failure when there is no undo file: nothing is
    changed then. Raises KafkaError.
    """
    result = plan.result
    command = f"{plan.command} (web console)"
    words = f"{command}: {reason}" if reason else command
    client_id = tool_client_id(result.change_id, words)
    config = replace(view.watch.config, client_id=client_id)
    chosen = argparse.Namespace(undo_file=undo_file(view, result.change_id))
    async with Admin.of(view.watch.bootstrap, config) as admin:
        committed = await admin.committed_offsets(plan.group)
        if result.plan.evicted:
            # Members go on committing: what they had is what is put back, and what was shown as new
            # is what is set.
            result.plan.changes[:] = [
                replace(change, old=committed.get(change.topic_partition))
                for change in result.plan.changes
            ]
        else:
            _check(plan, committed)
        changes = [as_json(change) for change in result.plan.needed]
        record(view, {"change": result.change_id, "what": words, "changes": changes})
        await execute_plan(admin, chosen, command, result)
        problem = "" if result.is_good else "not everything is as planned"
        record_outcome(view, result.change_id, problem)
    view.watch.expire()


def _check(plan: GroupPlan, committed: Mapping[TopicPartition, Committed]) -> None:
    for change in plan.result.plan.changes:
        now = offset_of(committed.get(change.topic_partition))
        if now != offset_of(change.old):
            place = f"{change.topic_partition.topic}-{change.topic_partition.partition}"
            raise MovedOn(
                f"{place} is at {now} now, and was at {offset_of(change.old)} when this was planned"
            )


async def apply_setting_plan(view: View, plan: SettingPlan, reason: str) -> None:
    """Set it; raises KafkaError, Failure when the audit file cannot be written."""
    what = f"{plan.topic}: {plan.name}={plan.new}" if plan.new is not None else (
        f"{plan.topic}: {plan.name} back to its default"
    )  # fmt: skip
    change = secrets.token_hex(6)
    words = f"{what} (web console)" + (f": {reason}" if reason else "")
    asked = {"reason": reason, "old": plan.old, "new": plan.new}
    record(view, {"change": change, "what": words, **asked})
    config = replace(view.watch.config, client_id=tool_client_id(change, words))
    async with Admin.of(view.watch.bootstrap, config) as admin:
        values = {} if plan.new is None else {plan.name: plan.new}
        removed = [plan.name] if plan.new is None else []
        try:
            await alter_settings(admin.cluster, plan.topic, values, removed)
        except KafkaError as error:
            record_outcome(view, change, f"The cluster answered: {error}")
            raise
    record_outcome(view, change, "")
    view.watch.expire()


def undo_file(view: View, change_id: str) -> Path:
    """Where the way back of a change is written before it is made."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(view.now_ms // 1000))
    return view.settings.undo_directory / f"barnabas-undo-{stamp}-{change_id}.json"


def record(view: View, what: Mapping[str, Any]) -> None:
    """One line in the audit file, on the disk before anything is asked; raises Failure."""
    line = {
        "time_ms": view.now_ms,
        "principal": view.session.principal,
        "bootstrap": view.watch.bootstrap,
        **what,
    }
    view.watch.changes.append(line)
    if view.settings.audit_file is not None:
        _write(view.settings.audit_file, line)


def record_outcome(view: View, change: str, problem: str) -> None:
    """What came of a change that was recorded: a second line; one that cannot be written is told.

    The change is made by then, so nothing is raised.
    """
    outcome = problem or "done, and read again"
    for line in view.watch.changes:
        if line.get("change") == change:
            line["outcome"] = outcome
    if view.settings.audit_file is None:
        return
    try:
        _write(view.settings.audit_file, {
            "time_ms": now_ms(), "principal": view.session.principal,
            "bootstrap": view.watch.bootstrap, "change": change, "outcome": outcome,
        })  # fmt: skip
    except Failure as failure:
        log.error("audit line lost change=%s reason=%s", change, failure)


def _write(path: Path, line: Mapping[str, Any]) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _MODE)
        with os.fdopen(handle, "ab") as file:
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Failure(
            f"nothing was changed: the audit file cannot be written: {describe_os_error(error)}"
        ) from None

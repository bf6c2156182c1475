"""Does an operation that was planned and shown: planned anew, recorded, done, read again.

Source: docs/spec/console.md §0 (decision 5), §2.2 and §3.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import replace

from barnabas.client.admin.admin import Admin
from barnabas.client.errors import KafkaError
from barnabas.console.web.operations.operation import (
    SECRET,
    SECRET_CHARACTERS_MOST,
    Impossible,
    Operation,
    Planned,
)
from barnabas.console.web.page import View
from barnabas.console.web.query import BadQuery, url_of
from barnabas.protocol.audit_topic import tool_client_id

from .execution import MovedOn, record, record_outcome
from .pending import Done, OperationPlan


async def apply_operation(
    view: View, operation: Operation, plan: OperationPlan, form: Mapping[str, str], reason: str
) -> Done:
    """Do it and say what came of it.

    Raises MovedOn when it would do something else by now, BadQuery when what has to be typed was
    not; nothing is changed then. Raises Failure when the audit file cannot be written, KafkaError.
    """
    try:
        planned = await operation.plan(view, plan.values)
    except (BadQuery, Impossible) as error:
        raise MovedOn(str(error)) from None
    if [row.as_json() for row in planned.rows] != list(plan.rows):
        raise MovedOn("The cluster is not as it was when this was planned")
    _check_typed(planned, form)
    change = secrets.token_hex(6)
    words = f"{planned.summary} (web console)" + (f": {reason}" if reason else "")
    record(view, {
        "change": change, "what": words, "reason": reason,
        "changes": [row.as_json() for row in planned.rows],
    })  # fmt: skip
    problem = await _done(view, planned, form, tool_client_id(change, words))
    record_outcome(view, change, problem)
    view.watch.expire()
    undo = planned.undo if planned.undo is not None and not problem else None
    return Done(
        change=change, summary=planned.summary, rows=[row.as_json() for row in planned.rows],
        problem=problem, undo_url=url_of(planned.undo_path, {**undo, "plan": "1"}) if undo else "",
        back=planned.back,
    )  # fmt: skip


def _check_typed(planned: Planned, form: Mapping[str, str]) -> None:
    typed = form.get("typed", "").strip()
    if planned.typed is not None and not hmac.compare_digest(
        typed.encode(), planned.typed.encode()
    ):
        raise BadQuery(f"Type {planned.typed} into the field before the button")
    if planned.secret is not None and not 0 < len(form.get(SECRET, "")) <= SECRET_CHARACTERS_MOST:
        raise BadQuery(f"{planned.secret}: type one")


async def _done(view: View, planned: Planned, form: Mapping[str, str], client_id: str) -> str:
    """Over a connection that names the change; why it is not as planned, or nothing."""
    config = replace(view.watch.config, client_id=client_id)
    async with Admin.of(view.watch.bootstrap, config) as admin:
        try:
            await planned.do(admin, form)
        except KafkaError as error:
            return f"The cluster answered: {error}"
        try:
            return await planned.check(admin)
        except KafkaError as error:
            return f"done, and could not be read again: {error}"

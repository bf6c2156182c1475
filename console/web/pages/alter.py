"""A setting of a topic: the value that holds, the one that is wanted, and what that changes.

Source: docs/spec/console.md §2.3 (settings).
"""

from __future__ import annotations

from typing import Final

from barnabas.client.admin.topic_configs import TOPIC_SOURCE
from barnabas.console.web.changes.pending import SettingPlan, keep, new_id
from barnabas.console.web.page import Page, View
from barnabas.console.web.roles import Role
from barnabas.protocol.errors import ErrorCode

from .not_found import not_found

COLUMNS: Final = ("topic", "name", "old", "new")
_MISSING: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name


async def page(view: View) -> Page:
    """The form; with a value also the difference, and the button that makes it."""
    topic = view.query.required("topic")
    view.session.rights.require(Role.OPERATOR, topic=topic)
    reading = await view.watch.catalogue.settings.read(topic)
    if not reading.value:
        is_missing = reading.problem is not None and reading.problem.code == _MISSING
        return not_found(view, "topic", topic, None if is_missing else reading.problem)
    settings = {setting.name: setting for setting in reading.value if not setting.is_sensitive}
    name = view.query.text("setting")
    problem = "" if not name or name in settings else f"the topic has no setting {name}"
    plan = None
    if name in settings and ("value" in view.query.given or view.query.flag("default")):
        known = settings[name]
        plan = SettingPlan(
            id=new_id(),
            topic=topic,
            name=name,
            old=known.value if known.source == TOPIC_SOURCE else None,
            new=None if view.query.flag("default") else view.query.text("value"),
            shown_old=known.value,
            url=view.query.url(),
        )
        if not view.settings.is_read_only and plan.old != plan.new:
            keep(view.session, plan)
    row = plan and {
        "id": plan.id, "topic": topic, "name": name, "old": plan.old, "new": plan.new,
        "shown_old": plan.shown_old, "is_needed": plan.old != plan.new,
    }  # fmt: skip
    model = {
        "topic": topic,
        "reading": reading.state(),
        "settings": [
            {"name": setting.name, "value": setting.value, "source": setting.source}
            for setting in settings.values()
        ],
        "chosen": name,
        "plan": row,
        "problem": problem,
    }
    return Page(
        title=f"Settings of {topic}", template="alter.html", model=model, columns=COLUMNS,
        rows=[row] if row else [], is_live=False,
    )  # fmt: skip

"""Roles: what a viewer, a reader, an operator and an administrator may do in a console.

Source: docs/spec/console.md §3 (security).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from barnabas.client import Producer
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed, NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.failure import Failure, Misuse
from barnabas.console.web.console_settings import ConsoleSettings
from barnabas.console.web.pages.actions import ACTIONS
from barnabas.console.web.pages.registry import PAGES, REQUIRED
from barnabas.console.web.roles import Forbidden, Role, read_roles
from barnabas.console.web.security import SESSION_PATHS
from tests.harness.deployments import Deployment, await_leaders
from tests.harness.web_console import NOWHERE, Reader, reader_of, seen
from tests.harness.web_pages import OF_THE_SESSION, path_of

SECRET = "what stands in the record"
FILE = """
[[role]]
principal = "User:eve"
role = "viewer"

[[role]]
principal = "User:*"
role = "operator"
topics = ["pay*", "orders"]
groups = ["billing"]
"""


def roles_file(folder: Path, text: str) -> Path:
    path = folder / "roles.toml"
    path.write_text(text)
    return path


def test_the_first_entry_that_matches_counts_and_a_stranger_has_no_role(tmp_path: Path) -> None:
    roles = read_roles(roles_file(tmp_path, FILE))
    eve, bob = roles.of("User:eve"), roles.of("User:bob")
    assert eve is not None
    assert bob is not None
    assert eve.role is Role.VIEWER
    assert roles.of("token via console") is None
    bob.require(Role.OPERATOR, topic="payments", group="billing")
    for role, topic, group in (
        (Role.ADMIN, None, None), (Role.OPERATOR, "hr", None), (Role.OPERATOR, None, "shipping"),
    ):  # fmt: skip
        with pytest.raises(Forbidden):
            bob.require(role, topic=topic, group=group)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "[[role]] entries"),
        ("[[role]]\nprincipal = 'User:a'", "role must be one of"),
        ("[[role]]\nprincipal = 'User:a'\nrole = 'root'", "role must be one of"),
        ("[[role]]\nrole = 'admin'", "principal must be a text"),
        ("[[role]]\nprincipal = 'a'\nrole = 'admin'\ntopics = 'all'", "topics must be a list"),
        ("[[role]]\nprincipal = 'a'\nrole = 'admin'\ntopic = ['a']", "it may have"),
        ("[[role", "roles.toml"),
    ],
)
def test_roles_that_are_not_understood_open_nothing(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(Failure) as told:
        read_roles(roles_file(tmp_path, text))
    assert why in str(told.value)


def test_a_console_for_everybody_has_to_have_a_role_for_everybody(tmp_path: Path) -> None:
    roles = read_roles(roles_file(tmp_path, FILE))
    with pytest.raises(Misuse):
        ConsoleSettings(auth="none", roles=roles).check()


async def test_whoever_has_no_role_is_not_let_in(tmp_path: Path) -> None:
    roles = read_roles(roles_file(tmp_path, FILE))
    async with reader_of(NOWHERE, roles=roles, is_in=False) as reader:
        answer = await reader.log_in()
        assert answer.status_code == 403
        assert "no role" in answer.text
        assert (await reader.get("/overview")).status_code == 401


@asynccontextmanager
async def in_role(bootstrap: str, folder: Path, role: str, more: str = "") -> AsyncIterator[Reader]:
    """A reader by token who has a role."""
    text = f'[[role]]\nprincipal = "token via console"\nrole = "{role}"\n{more}'
    roles = read_roles(roles_file(folder, text))
    async with reader_of(bootstrap, roles=roles) as reader:
        yield reader


@pytest.fixture
async def named(cluster: Deployment, topic: str, group: str) -> dict[str, str]:
    async with Admin.of(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(name=topic, partitions=2)])
        await asyncio.to_thread(await_leaders, cluster, topic, 2)
        async with Producer(cluster.bootstrap) as producer:
            await producer.send(topic, SECRET.encode(), key=SECRET.encode(), partition=0)
        await admin.alter_offsets(group, {TopicPartition(topic, 0): Committed(offset=0)})
    return {"topic": topic, "group": quote_plus(group)}


@pytest.mark.parametrize("role", list(Role))
async def test_every_page_opens_for_the_roles_that_it_takes_and_for_no_other(
    cluster: Deployment, named: dict[str, str], tmp_path: Path, role: Role
) -> None:
    async with in_role(cluster.bootstrap, tmp_path, role.name.lower()) as reader:
        for page in PAGES:
            for ending in ("", ".json", ".csv"):
                answer = await reader.get(path_of(page, named, ending))
                is_allowed = role >= REQUIRED.get(page, Role.VIEWER)
                good = 404 if page in OF_THE_SESSION else 200
                assert answer.status_code == (good if is_allowed else 403), (page, answer.text)
                if role < Role.READER:
                    assert SECRET not in answer.text, page
            if role < Role.OPERATOR:
                found = seen((await reader.get(path_of(page, named))).text)
                posts = {action for method, action in found.forms if method != "get"}
                assert posts <= set(SESSION_PATHS), page
                paths = {link.partition("?")[0] for link in found.links}
                assert not paths & set(REQUIRED) - {"/undo"}, page


async def test_a_plan_is_not_applied_for_whom_its_role_was_taken_away(
    cluster: Deployment, named: dict[str, str], tmp_path: Path
) -> None:
    """The form is judged by itself, not only the page that showed it."""
    pages = {
        "/change/apply": "/change", "/alter/apply": "/alter",
        "/operation/apply": "/topic-create",
    }  # fmt: skip
    assert set(pages) == set(ACTIONS)
    async with in_role(cluster.bootstrap, tmp_path, "admin") as reader:
        viewer = read_roles(roles_file(tmp_path, FILE)).of("User:eve")
        assert viewer is not None
        (session,) = reader.console.logins._sessions._by_id.values()
        full = session.rights
        for action, page in pages.items():
            plan = (await reader.json(path_of(page, named, ".json")))["plan"]["id"]
            session.rights = viewer
            answer = await reader.post(action, {"plan": plan})
            assert answer.status_code == 403, action
            assert "your role here is viewer" in answer.text
            session.rights = full


async def test_an_operator_changes_what_the_role_is_for_and_reads_no_other_records(
    cluster: Deployment, named: dict[str, str], tmp_path: Path, topic: str
) -> None:
    more = f'topics = ["{topic}"]\ngroups = ["mine-*"]'
    async with in_role(cluster.bootstrap, tmp_path, "operator", more) as reader:
        assert SECRET in (await reader.get(f"/records?topic={topic}")).text
        assert (await reader.get(f"/change?group={named['group']}")).status_code == 403
        assert (await reader.get("/change?group=mine-1")).status_code == 200
        assert (await reader.get("/alter?topic=another")).status_code == 403
    async with in_role(cluster.bootstrap, tmp_path, "reader", 'topics = ["no"]') as reader:
        shown = await reader.get(f"/records?topic={topic}&where=value+contains+%22record%22")
        assert SECRET not in shown.text
        found = await reader.get(f"/records.json?topic={topic}&where=value+contains+%22stands%22")
        assert found.json()["records"] == []
        value = await reader.get(f"/record/value?topic={topic}&partition=0&offset=0")
        assert value.status_code == 403

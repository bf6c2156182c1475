"""Who gets in, for how long, and what a console refuses to be started with.

Source: docs/spec/console.md §3 (security).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from barnabas.client.client_config import ClientConfig
from barnabas.console.command_line.failure import Misuse
from barnabas.console.web.answers import safe_back
from barnabas.console.web.console_settings import ConsoleSettings
from barnabas.console.web.session import (
    IDLE_S,
    LIFE_S,
    SESSIONS_MOST,
    LoginThrottle,
    Session,
    Sessions,
)
from barnabas.console.web.watch.cluster_watch import ClusterWatch
from tests.harness.web_console import FORM, NOWHERE, QUICK, reader_of


@dataclass
class Clock:
    """Time that passes when a test says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(clock)


def begin(sessions: Sessions) -> Session:
    return sessions.begin("somebody", ClusterWatch(NOWHERE, QUICK), owns_watch=True)


def test_a_session_ends_when_nobody_uses_it(sessions: Sessions, clock: Clock) -> None:
    session = begin(sessions)
    clock.now += IDLE_S - 1
    assert sessions.find(session.id) is session
    clock.now += IDLE_S - 1
    assert sessions.find(session.id, is_used=False) is session
    clock.now += 2
    gone = sessions.find(session.id)
    assert gone is None
    assert sessions.ended == [session.watch], "its connections are to be closed"


def test_a_session_ends_after_its_life_however_busy(sessions: Sessions, clock: Clock) -> None:
    session = begin(sessions)
    for _ in range(int(LIFE_S / (IDLE_S - 60)) + 1):
        clock.now += IDLE_S - 60
        sessions.find(session.id)
    assert sessions.find(session.id) is None


def test_one_session_too_many_ends_the_one_that_was_used_longest_ago(sessions: Sessions) -> None:
    first, second = begin(sessions), begin(sessions)
    sessions.find(first.id)
    for _ in range(SESSIONS_MOST - 1):
        begin(sessions)
    assert len(sessions) == SESSIONS_MOST
    assert sessions.find(first.id) is first
    assert sessions.find(second.id) is None


def test_an_address_has_five_attempts_a_minute(clock: Clock) -> None:
    throttle = LoginThrottle(clock)
    assert [throttle.admit("a") for _ in range(6)] == [True] * 5 + [False]
    assert throttle.admit("b")
    clock.now += 61
    assert throttle.admit("a")


async def test_the_printed_token_opens_the_console_and_another_one_does_not() -> None:
    async with reader_of(NOWHERE, is_in=False) as reader:
        wrong = await reader.http.get("/login?token=guessed")
        assert wrong.status_code == 403
        assert "guessed" not in wrong.text
        answer = await reader.log_in()
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert (await reader.get("/topics")).status_code == 200
        assert (await reader.post("/logout")).status_code == 303
        assert (await reader.get("/topics")).status_code == 401


async def test_a_new_login_has_a_new_id_and_the_old_one_is_worth_nothing() -> None:
    async with reader_of(NOWHERE) as reader:
        (old,) = reader.http.cookies.values()
        await reader.log_in()
        (new,) = reader.http.cookies.values()
        assert new != old
        reader.http.cookies.clear()
        reader.http.cookies.set("barnabas-console-9080", old, domain="127.0.0.1")
        assert (await reader.get("/topics")).status_code == 401


async def test_the_sixth_attempt_is_told_to_wait_unless_it_brings_the_token() -> None:
    async with reader_of(NOWHERE, is_in=False) as reader:
        told = [
            (await reader.http.post("/login", data={"token": "no"}, headers=FORM)).status_code
            for _ in range(6)
        ]
        assert told == [403] * 5 + [429]
        assert (await reader.log_in()).status_code == 303, "another site kept the reader out"


async def test_consoles_on_two_ports_of_a_host_keep_their_sessions_apart() -> None:
    async with reader_of(NOWHERE) as reader, reader_of(NOWHERE, is_in=False) as other:
        other.http.base_url = httpx.URL("http://127.0.0.1:9081")
        assert (await other.log_in()).status_code == 303
        reader.http.cookies.update(other.http.cookies)  # as a browser keeps them: by host
        other.http.cookies.update(reader.http.cookies)
        assert (await reader.get("/topics")).status_code == 200
        assert (await other.get("/topics")).status_code == 200


@pytest.mark.parametrize("origin", ["http://[", "null", "https://evil.example"])
async def test_a_form_of_another_origin_is_refused_even_where_that_is_none(origin: str) -> None:
    async with reader_of(NOWHERE) as reader:
        answer = await reader.http.post("/logout", headers={"origin": origin})
        assert answer.status_code == 403


async def test_over_tls_cookies_are_bound_to_the_host() -> None:
    async with reader_of(
        NOWHERE, is_in=False, is_behind_proxy=True, names=("127.0.0.1",)
    ) as reader:
        answer = await reader.log_in()
        assert answer.headers["set-cookie"].startswith("__Host-barnabas-console-9080=")
        assert "Secure" in answer.headers["set-cookie"]
        assert "max-age" in answer.headers["strict-transport-security"]


async def test_without_a_login_everybody_on_this_machine_is_let_in() -> None:
    async with reader_of(NOWHERE, auth="none") as reader:
        assert (await reader.get("/topics")).status_code == 200
        assert "Log out" not in (await reader.get("/topics")).text


async def test_a_page_that_refreshes_itself_after_the_session_ended_leads_to_the_login() -> None:
    async with reader_of(NOWHERE, is_in=False) as reader:
        answer = await reader.http.get("/topics", headers={"hx-request": "true"})
        assert answer.status_code == 401
        assert answer.headers["hx-redirect"] == "/login"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"host": "0.0.0.0"}, "passwords would travel in clear"),
        (
            {"host": "192.0.2.7", "auth": "none", "certificate": Path("c"), "key": Path("k")},
            "loopback",
        ),
        ({"auth": "none", "is_behind_proxy": True, "names": ("a",)}, "behind a proxy"),
        ({"certificate": Path("c")}, "go together"),
        ({"host": "0.0.0.0", "is_published_on_loopback": True, "auth": "none"}, "loopback"),
        ({"is_published_on_loopback": True, "is_behind_proxy": True, "names": ("a",)}, "no TLS"),
        ({"is_behind_proxy": True}, "--allowed-host"),
    ],
)
def test_a_console_that_would_stand_open_does_not_start(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(Misuse, match=words):
        ConsoleSettings(**settings).check()


@pytest.mark.parametrize(
    "back",
    [
        "//evil.example",
        "//[",
        "http://[",
        "https://evil.example/",
        "/\\evil.example",
        "x",
        "",
        "/a\nb",
    ],
)
def test_a_login_leads_to_no_other_site(back: str) -> None:
    assert safe_back(back) == "/overview"
    assert safe_back("/groups?q=a*&n=5") == "/groups?q=a*&n=5"


def test_a_config_keeps_its_password_to_itself() -> None:
    assert "hunter2" not in repr(ClientConfig(sasl_username="u", sasl_password="hunter2"))

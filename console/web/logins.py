"""Who may log in, and with whose rights the cluster is asked then.

Where users have names and passwords in the cluster (``sasl``), these are proved by a connection,
and everything that a session asks goes over connections of its own. Else a token opens the
console, and all sessions share what the console itself may. Source: docs/spec/console.md §3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from starlette.requests import Request

from barnabas.client.client_config import ClientConfig
from barnabas.client.errors import AuthenticationFailed

from .answers import FRAGMENT
from .console_settings import ANYBODY, ConsoleSettings
from .session import LoginThrottle, Session, Sessions, Token
from .watch.cluster_watch import ClusterWatch
from .watch.reading import FAILURES

SESSION_COOKIE: Final = "barnabas-console"
TOKEN_PRINCIPAL: Final = "token via console"  # noqa: S105 - a name
_NO_ROLE: Final = "You have no role in this console: ask whoever runs it."


def session_cookie(request: Request, settings: ConsoleSettings) -> str:
    """The name of the cookie that holds a session; its prefix binds it to the host (RFC 6265bis).

    Browsers keep cookies by host, not by port: two consoles on one machine would log each other's
    readers out under one name.
    """
    _, port = request.scope.get("server") or (None, None)
    prefix = "__Host-" if settings.is_secure else ""
    return f"{prefix}{SESSION_COOKIE}-{port}"


class LoginRefused(NamedTuple):
    """Why somebody was not let in; ``status`` is HTTP's."""

    text: str
    status: int


class Logins:
    """Sessions, and the ways to begin one."""

    def __init__(self, bootstrap: str, config: ClientConfig, settings: ConsoleSettings) -> None:
        self.token = Token()
        self._bootstrap = bootstrap
        self._config = config
        self._settings = settings
        self._sessions = Sessions()
        self._throttle = LoginThrottle()
        self._shared: ClusterWatch | None = None
        self._anybody: Session | None = None

    def open(self) -> None:
        """The loop runs: what all share can be made."""
        if self._settings.auth != "sasl":
            self._shared = ClusterWatch(self._bootstrap, self._config, self._settings.status_token)
        if self._settings.auth == "none":
            assert self._shared is not None
            rights = self._settings.rights_of(ANYBODY)
            if rights is not None:
                self._anybody = Sessions().begin(
                    ANYBODY, self._shared, owns_watch=False, rights=rights
                )

    @property
    def shared(self) -> ClusterWatch | None:
        """What all sessions share; None where each has its own."""
        return self._shared

    @property
    def sessions(self) -> int:
        """How many have logged in and not left."""
        return len(self._sessions)

    def ask_anew(self) -> None:
        """What all share is asked for anew at the next look."""
        if self._shared is not None:
            self._shared.expire()

    async def close(self) -> None:
        """End all sessions and close all connections."""
        self._sessions.end_all()
        await self._close_ended()
        if self._shared is not None:
            await self._shared.close()

    async def session_of(self, request: Request) -> Session | None:
        """The session that a request belongs to; None when its sender has to log in."""
        if self._anybody is not None:
            return self._anybody
        name = session_cookie(request, self._settings)
        found = self._sessions.find(
            request.cookies.get(name, ""), is_used=FRAGMENT not in request.headers
        )
        await self._close_ended()
        return found

    def is_live(self, session: Session) -> bool:
        """Whether a session has not ended; to ask keeps it no longer alive."""
        if session is self._anybody:
            return True
        return self._sessions.find(session.id, is_used=False) is session

    async def log_in(self, request: Request, form: Mapping[str, str]) -> Session | LoginRefused:
        """A new session for who proves who he is."""
        address = request.client.host if request.client else ""
        # The token cannot be guessed: whoever has it gets in, whatever else comes from his address,
        # which a page of any other site in his browser can ask in his name.
        if not self._has_token(form) and not self._throttle.admit(address):
            return LoginRefused("Too many attempts from your address: wait a minute.", 429)
        old = await self.session_of(request)
        made = await (
            self._by_password(form) if self._settings.auth == "sasl" else self._by_token(form)
        )
        if isinstance(made, Session) and old is not None and old is not self._anybody:
            self._sessions.end(old)
        await self._close_ended()
        return made

    async def log_out(self, session: Session) -> None:
        """End a session, and its connections."""
        self._sessions.end(session)
        await self._close_ended()

    async def _by_token(self, form: Mapping[str, str]) -> Session | LoginRefused:
        if not self._has_token(form):
            return LoginRefused("This is not the token that the console printed.", 403)
        assert self._shared is not None
        rights = self._settings.rights_of(TOKEN_PRINCIPAL)
        if rights is None:
            return LoginRefused(_NO_ROLE, 403)
        return self._sessions.begin(TOKEN_PRINCIPAL, self._shared, owns_watch=False, rights=rights)

    def _has_token(self, form: Mapping[str, str]) -> bool:
        return self._settings.auth != "sasl" and self.token.matches(form.get("token", ""))

    async def _by_password(self, form: Mapping[str, str]) -> Session | LoginRefused:
        username, password = form.get("username", ""), form.get("password", "")
        if not username:
            return LoginRefused("A name is needed.", 403)
        config = replace(
            self._config, sasl_username=username, sasl_password=password, sasl_jaas_config=None,
            security_protocol=_with_login(self._config.security_protocol),
        )  # fmt: skip
        watch = ClusterWatch(self._bootstrap, config, self._settings.status_token)
        try:
            await watch.admin.cluster.nodes()
        except AuthenticationFailed:
            await watch.close()
            return LoginRefused("The cluster refuses this name and password.", 403)
        except FAILURES as error:
            await watch.close()
            return LoginRefused(f"The cluster cannot be asked: {error}", 502)
        principal = f"User:{username}"
        rights = self._settings.rights_of(principal)  # after the proof: nobody learns who has one
        if rights is None:
            await watch.close()
            return LoginRefused(_NO_ROLE, 403)
        return self._sessions.begin(principal, watch, owns_watch=True, rights=rights)

    async def _close_ended(self) -> None:
        while self._sessions.ended:
            await self._sessions.ended.pop().close()


def _with_login(protocol: str | None) -> str:
    return "SASL_SSL" if protocol in ("SSL", "SASL_SSL") else "SASL_PLAINTEXT"

"""Logs a kazoo client in at each new connection, before anybody is told that there is one.

kazoo itself tells first and logs in then, and gives up for good when ZooKeeper refuses: a node
would hang with a session that is nobody's. Source: docs/spec/security.md §5 (S68).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.states import KazooState

from .identity import SASL_REMEDY, ZooKeeperIdentity, ZooKeeperLogin, is_sasl_installed
from .interface import ZooKeeperError

log = logging.getLogger(__name__)

SAY_AGAIN_S: Final = 60.0
"""Between two complaints about the same."""
_FAILURES: Final = (
    kazoo_errors.ZookeeperError,  # there are two for it, which end kazoo's thread if they get there
    kazoo_errors.SASLException,
    RuntimeError,  # kazoo's word for an answer that is none to a login
)


class KazooLogins:
    """The logins of one session; everything but the constructor runs on kazoo's thread.

    Of several SASL logins the next one is tried when one is refused: so a password can be changed
    on the servers, one after the other, under nodes that know the former one and the new one.
    """

    def __init__(
        self, client: Any, identity: ZooKeeperIdentity, tell: Callable[[str], None]
    ) -> None:
        """Raises ZooKeeperError where the library for SASL is missing."""
        if identity.sasl and not is_sasl_installed():
            raise ZooKeeperError(f"a login to ZooKeeper by SASL {SASL_REMEDY}")
        self.problem = ""
        """Why the last login failed; empty after one that succeeded."""
        self._identity = identity
        self._tell = tell
        self._next = 0
        self._refusals = 0
        """In a row."""
        self._said_at: float | None = None
        self._is_logging_in = False
        self._is_held_back = False
        self._connection = client._connection  # noqa: SLF001 - it has no public name
        for login in identity.digests:
            client.auth_data.add(("digest", f"{login.user}:{login.password}"))
        if identity.logins:
            self._connect = self._connection._connect  # noqa: SLF001
            self._connection._connect = self._attempt  # noqa: SLF001

    def holds_back(self, state: str) -> bool:
        """Whether nobody is to be told of a state of kazoo's: one that is not logged in yet."""
        if self._is_logging_in and state == KazooState.CONNECTED:
            self._is_held_back = True
            return True
        if self._is_held_back and state == KazooState.SUSPENDED:
            self._is_held_back = False
            return True
        return False

    def _attempt(self, host: str, address: str, port: int) -> Any:
        self._is_logging_in, self._is_held_back = True, False
        if self._identity.sasl:
            self._connection.sasl_options = _options(self._login)
        try:
            timeouts = self._connect(host, address, port)
        except kazoo_errors.SessionExpiredError:
            raise
        except _FAILURES as error:
            self._refused(f"{host}:{port}", error)
            raise kazoo_errors.ConnectionDropped(self.problem) from error
        finally:
            self._is_logging_in = False
        self.problem, self._said_at, self._refusals = "", None, 0
        if self._is_held_back:
            self._is_held_back = False
            self._tell(KazooState.CONNECTED)
        return timeouts

    @property
    def _login(self) -> ZooKeeperLogin:
        logins = self._identity.sasl
        return logins[self._next % len(logins)]

    def _refused(self, server: str, error: Exception) -> None:
        self._next += 1
        self._refusals += 1
        self.problem = (
            f"ZooKeeper at {server} refuses the login of {self._identity.names} "
            f"({type(error).__name__}); its JAAS section Server and ours must agree"
        )
        if self._refusals < len(self._identity.sasl):
            log.info("zookeeper refused one login server=%s; trying the other", server)
            return
        now = time.monotonic()
        if self._said_at is None or now - self._said_at >= SAY_AGAIN_S:
            self._said_at = now
            log.error("%s", self.problem)


def _options(login: ZooKeeperLogin) -> dict[str, str]:
    return {"mechanism": "DIGEST-MD5", "username": login.user, "password": login.password}

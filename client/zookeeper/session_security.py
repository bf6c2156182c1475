"""How ZooKeeper is spoken to, and as whom: what settings say, for whoever opens sessions.

Source: docs/spec/security.md §5 (S68, S69).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from barnabas.client.tls.contexts import ClientTls

from .zookeeper_login_settings import ZooKeeperLoginSettings
from .zookeeper_tls_settings import ZooKeeperTlsSettings

if TYPE_CHECKING:
    from .kazoo_session import KazooSession

TIMEOUT_MS: Final = 18_000
"""Of a session, and of the time to get one, where nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """In clear and nobody, unless it says otherwise. May be pickled; its ``repr`` shows no secret.

    Files that it names are read for each session, where that is opened.
    """

    tls: ZooKeeperTlsSettings = field(default_factory=ZooKeeperTlsSettings)
    login: ZooKeeperLoginSettings = field(default_factory=ZooKeeperLoginSettings)

    async def connect(
        self,
        servers: str,
        *,
        session_timeout_ms: int = TIMEOUT_MS,
        connection_timeout_ms: int = TIMEOUT_MS,
    ) -> KazooSession:
        """A session with ``host:port,...[/chroot]``.

        Raises ConfigError for files that cannot be used, ConnectionLost and ZooKeeperError as
        ``kazoo_session.connect`` does.
        """
        # Imported where it is used: every command reads settings, few go to ZooKeeper.
        from .kazoo_session import connect

        tls = self.tls.tls
        return await connect(
            servers,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=connection_timeout_ms,
            tls=None if tls is None else ClientTls(tls),
            identity=self.login.identity(),
        )

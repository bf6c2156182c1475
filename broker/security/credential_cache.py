"""The SCRAM credentials of all users, as ZooKeeper has them; read again when one is announced.

Without ZooKeeper what is here decides. Source: docs/spec/security.md §2 (S32).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from barnabas.client.zookeeper.interface import ZooKeeper, read_if_any
from barnabas.protocol.scram import MECHANISMS, ScramCredential, ScramMechanism
from barnabas.protocol.zookeeper import user_znodes, znodes

log = logging.getLogger(__name__)

Credentials = Mapping[str, ScramCredential]
"""Of one user, by mechanism."""

_CHUNK: Final = 200
_NONE: Final[Credentials] = {}


class CredentialCache:
    """Credentials by user. An announcement says only whose to read; its content is not trusted."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._users: dict[str, Credentials] = {}

    def of(self, name: str) -> Credentials:
        """Of one user, none for a name that nobody has."""
        return self._users.get(name, _NONE)

    def find(self, mechanism: ScramMechanism, name: str) -> Sequence[ScramCredential]:
        """What a user may prove himself by."""
        found = self._users.get(name, _NONE).get(mechanism.name)
        return () if found is None else (found,)

    @property
    def users(self) -> Mapping[str, Credentials]:
        """All that have any."""
        return self._users

    async def load(self) -> None:
        """Read all users, when the node starts and after each new session.

        Changes are watched for by whoever calls :meth:`follow`, from before this is called.
        """
        names = set(user_znodes.user_names(await self._zookeeper.children(user_znodes.USERS)))
        await self._read({*names, *self._users})

    async def follow(self, entities: Collection[str]) -> None:
        """Read those again that were announced: ``users/NAME``, escaped."""
        await self._read(user_znodes.users_announced(entities))

    async def _read(self, names: Collection[str]) -> None:
        ordered = sorted(names)
        for start in range(0, len(ordered), _CHUNK):
            chunk = ordered[start : start + _CHUNK]
            for name, found in zip(
                chunk, await asyncio.gather(*map(self._read_one, chunk)), strict=True
            ):
                self._take(name, found)

    def _take(self, name: str, found: Credentials) -> None:
        if found == self.of(name):
            return
        if found:
            self._users[name] = found
        else:
            del self._users[name]
        log.info("changed the credentials of a user name=%r mechanisms=%s", name, sorted(found))

    async def _read_one(self, name: str) -> Credentials:
        """None where they cannot be read: who cannot be checked does not come in."""
        try:
            found = await read_if_any(self._zookeeper, user_znodes.user_path(name))
            config = znodes.EntityConfig.from_json(found[0] if found else b"").config
        except ValueError as error:
            log.error("ignored a user that cannot be read name=%r: %s", name, type(error).__name__)
            return {}
        return credentials_in(name, config)


def credentials_in(name: str, config: Mapping[str, str]) -> dict[str, ScramCredential]:
    """The credentials among a user's settings; what is none is logged, without its text."""
    credentials = {}
    for mechanism in MECHANISMS.values():
        text = config.get(mechanism.name)
        if text is None:
            continue
        try:
            credentials[mechanism.name] = user_znodes.credential_of(mechanism, text)
        except ValueError:
            log.error("ignored a credential name=%r mechanism=%s", name, mechanism.name)
    return credentials

"""Changes of users' SCRAM credentials: one write a user, and the note that tells every node.

Source: docs/spec/security.md §2 (S32, S33); KIP-554.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final

from barnabas.client.zookeeper.interface import (
    BadVersion,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    PayloadTooLarge,
    Set,
    ZooKeeper,
    ZooKeeperError,
    read_if_any,
)
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.scram import ScramCredential
from barnabas.protocol.zookeeper import user_znodes, znodes

ATTEMPTS_MAX: Final = 20
"""Writes lost in a row to others who change the same user."""

Changes = Mapping[str, ScramCredential | None]
"""By mechanism; None takes a credential away."""


class ScramCredentials:
    """Changes users in ZooKeeper; two who do so at once both succeed."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    async def change(self, name: str, changes: Changes) -> None:
        """Change one user, all or nothing; his other settings, quotas for example, stay.

        Raises Refused: 91 for taking away what is not there, 93 for a name that no znode can have.
        """
        try:
            path = user_znodes.user_path(name)
        except ValueError as error:
            raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from None
        for _ in range(ATTEMPTS_MAX):
            found = await read_if_any(self._zookeeper, path)
            config = _changed(_config(name, found[0] if found else b""), changes)
            data = znodes.EntityConfig(config=config).to_json()
            note = znodes.ConfigChange(entity_path=user_znodes.user_entity(name)).to_json()
            try:
                # Both or none: nodes that no note told of a deletion would let the user in for as
                # long as they run, and who deletes again is told that there is nothing (91).
                await self._zookeeper.multi(
                    Create(path, data) if found is None else Set(path, data, found[1].version),
                    Create(znodes.CONFIG_CHANGE_PREFIX, note, sequence=True),
                )
            except MultiFailed as failed:
                if isinstance(failed.error, NoNode):
                    await self._create_parents(path, znodes.CONFIG_CHANGE_PREFIX)
                elif not isinstance(failed.error, BadVersion | NodeExists):
                    raise
                continue
            except PayloadTooLarge:
                reason = "the settings are more than a znode can hold"
                raise Refused(ErrorCode.INVALID_REQUEST, reason) from None
            return
        raise ZooKeeperError(f"others keep changing {path}")

    async def _create_parents(self, *paths: str) -> None:
        """The first user may be older than the cluster (S34)."""
        for path in paths:
            with contextlib.suppress(NodeExists):
                await self._zookeeper.create(path.rpartition("/")[0], parents=True)


def _changed(config: Mapping[str, str], changes: Changes) -> dict[str, str]:
    wanted = dict(config)
    for mechanism, credential in changes.items():
        if credential is not None:
            wanted[mechanism] = user_znodes.credential_text(credential)
        elif wanted.pop(mechanism, None) is None:
            raise Refused(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    return wanted


def _config(name: str, data: bytes) -> Mapping[str, str]:
    try:
        return znodes.EntityConfig.from_json(data).config
    except ValueError:
        reason = f"what ZooKeeper has of {name!r} cannot be read"
        raise Refused(ErrorCode.INVALID_CONFIG, reason) from None

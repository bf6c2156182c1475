"""The users of a folder of ``barnabas security init``, given to ZooKeeper.

Source: docs/spec/security.md §2 (S32, S34).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path

from barnabas.broker.security.credential_cache import CredentialCache
from barnabas.broker.security.scram_credentials import ScramCredentials
from barnabas.client.zookeeper.interface import NoNode, ZooKeeper
from barnabas.console.command_line.failure import Failure
from barnabas.protocol.errors import Refused
from barnabas.protocol.scram import (
    ITERATIONS_MIN,
    MECHANISMS,
    ScramCredential,
    credential,
    salted_password,
)

from .client_access import MECHANISM
from .cluster_files import PASSWORD_SUFFIX

_SALT_BYTES = 24


def passwords_of(directory: Path) -> Mapping[str, str]:
    """By user; raises Failure where there are none, OSError."""
    found = {
        path.name.removesuffix(PASSWORD_SUFFIX): path.read_text(encoding="utf-8").strip()
        for path in sorted((directory / "users").glob(f"*{PASSWORD_SUFFIX}"))
    }
    if not found:
        raise Failure(
            f"{directory / 'users'}: holds no passwords; barnabas security init makes some"
        )
    empty = [name for name, password in found.items() if not password]
    if empty:
        raise Failure(f"{directory / 'users' / empty[0]}{PASSWORD_SUFFIX}: is empty")
    return found


async def set_users(zookeeper: ZooKeeper, passwords: Mapping[str, str]) -> list[str]:
    """Give ZooKeeper the passwords that it does not have; whose they were."""
    cache = CredentialCache(zookeeper)
    try:
        await cache.load()
        known = cache.users
    except NoNode:
        known = {}  # no node has ever run
    changed = []
    for name, password in passwords.items():
        held = known.get(name, {}).get(MECHANISM)
        if held is not None and _is_of(held, password):
            continue
        try:
            await ScramCredentials(zookeeper).change(name, {MECHANISM: _credential(password)})
        except Refused as refusal:
            raise Failure(f"user {name}: {refusal.message}") from None
        changed.append(name)
    return changed


def _credential(password: str) -> ScramCredential:
    made, salt = MECHANISMS[MECHANISM], secrets.token_urlsafe(_SALT_BYTES).encode()
    salted = salted_password(made, password, salt, ITERATIONS_MIN)
    return credential(made, salted, salt, ITERATIONS_MIN)


def _is_of(held: ScramCredential, password: str) -> bool:
    made = MECHANISMS[MECHANISM]
    salted = salted_password(made, password, held.salt, held.iterations)
    again = credential(made, salted, held.salt, held.iterations)
    return hmac.compare_digest(again.stored_key, held.stored_key)

"""Users in ZooKeeper: where each stands, and their SCRAM credentials as text.

    /config/users/<escaped name>   {"version":1,"config":{"SCRAM-SHA-256":"salt=..,stored_key=..,
                                    server_key=..,iterations=4096", <other settings>}}

Source: docs/spec/security.md §2 (S32).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Final

from barnabas.protocol.sanitizer import desanitize, sanitize
from barnabas.protocol.scram import ScramCredential, ScramMechanism

USERS: Final = "/config/users"
_ENTITY: Final = "users/"
_FIELDS: Final = ("salt", "stored_key", "server_key", "iterations")


def user_path(name: str) -> str:
    """Where a user stands; raises ValueError for a name that no path can have."""
    if name in ("", ".", ".."):
        raise ValueError(f"{name!r} cannot be the name of a user")
    return f"{USERS}/{sanitize(name)}"


def user_entity(name: str) -> str:
    """What a change of this user is announced as."""
    return _ENTITY + sanitize(name)


def user_names(znodes: Iterable[str]) -> list[str]:
    """The users among the children of USERS; neither the default nor what is no escaped name."""
    return [name for name in map(_name, znodes) if name is not None]


def users_announced(entities: Iterable[str]) -> list[str]:
    """The users among announced changes, without those of a user's single clients."""
    return user_names(
        entity.removeprefix(_ENTITY) for entity in entities if entity.startswith(_ENTITY)
    )


def _name(znode: str) -> str | None:
    try:
        return desanitize(znode)
    except ValueError:
        return None


def credential_text(credential: ScramCredential) -> str:
    """A credential as Kafka writes it."""
    keys = (credential.salt, credential.stored_key, credential.server_key)
    salt, stored_key, server_key = (base64.b64encode(key).decode() for key in keys)
    return (
        f"salt={salt},stored_key={stored_key},server_key={server_key},"
        f"iterations={credential.iterations}"
    )


def credential_of(mechanism: ScramMechanism, text: str) -> ScramCredential:
    """Read a credential; raises ValueError for another set of fields or keys of another length."""
    fields = dict(_pair(word) for word in text.split(","))
    if sorted(fields) != sorted(_FIELDS) or text.count(",") != len(_FIELDS) - 1:
        raise ValueError("not the four fields of a credential")
    keys = [base64.b64decode(fields[name], validate=True) for name in _FIELDS[:3]]
    salt, stored_key, server_key = keys
    digits = fields["iterations"]
    if not (salt and len(stored_key) == len(server_key) == mechanism.digest_bytes):
        raise ValueError("keys of another length")
    if not (digits.isascii() and digits.isdigit() and 0 < int(digits[:10]) < 1 << 31):
        raise ValueError("no number of iterations")
    return ScramCredential(salt, stored_key, server_key, int(digits))


def _pair(word: str) -> tuple[str, str]:
    key, _, value = word.partition("=")  # base64 ends in = as well
    return key, value

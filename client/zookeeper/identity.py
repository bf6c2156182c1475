"""Who a session is to ZooKeeper, and whether what it creates is its own.

All nodes of a cluster must be one and the same: what one creates, the others have to change.
Source: docs/spec/security.md §5 (S67, S68).
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from dataclasses import dataclass, field
from typing import Final, Literal

Scheme = Literal["sasl", "digest"]
SASL_PACKAGE: Final = "puresasl"
SASL_REMEDY: Final = "needs pure-sasl: pip install 'barnabas[zookeeper-sasl]'"


@dataclass(frozen=True, slots=True)
class ZooKeeperLogin:
    """A name and its password, proved by SASL DIGEST-MD5, or sent as ZooKeeper's digest."""

    scheme: Scheme
    user: str
    password: str = field(repr=False)

    @property
    def id(self) -> str:
        """As it stands in access control lists, ``scheme:id``."""
        if self.scheme == "sasl":
            return f"sasl:{self.user}"
        # ZooKeeper's own format; what protects the password is who may read the list.
        digest = hashlib.sha1(f"{self.user}:{self.password}".encode()).digest()  # noqa: S324
        return f"digest:{self.user}:{base64.b64encode(digest).decode()}"


@dataclass(frozen=True, slots=True)
class ZooKeeperIdentity:
    """The logins of a session, and whether it secures what it creates."""

    logins: tuple[ZooKeeperLogin, ...] = ()
    """Of SASL the first that ZooKeeper takes; of digest all of them, each of which then owns."""
    secures: bool = False
    """Whether znodes are created as ``znode_access`` has it; else everybody may change them."""

    @property
    def sasl(self) -> tuple[ZooKeeperLogin, ...]:
        """Those that are proved by SASL."""
        return tuple(login for login in self.logins if login.scheme == "sasl")

    @property
    def digests(self) -> tuple[ZooKeeperLogin, ...]:
        """Those that are sent."""
        return tuple(login for login in self.logins if login.scheme == "digest")

    @property
    def names(self) -> str:
        """For messages: who this is, without what proves it."""
        found = dict.fromkeys(f"{login.scheme}:{login.user}" for login in self.logins)
        return ", ".join(found) or "nobody but its certificate"


def is_sasl_installed() -> bool:
    """Whether the library is there that kazoo logs in by."""
    return importlib.util.find_spec(SASL_PACKAGE) is not None

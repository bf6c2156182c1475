"""``cluster.secret``: what nodes prove to each other, and what is derived from it.

By SCRAM-SHA-512 the secret never travels, and the node that is dialled proves itself as well. Each
use has a label of its own, so that what is heard of one says nothing of another: here the salt and
the key of decoys, in protocol/beacon.py that of beacons.
Source: docs/spec/security.md §6 (S71, S73).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from barnabas.client.connection.sasl_login import SaslLogin
from barnabas.protocol.scram import (
    SHA_512,
    Salting,
    ScramCredential,
    ScramMechanism,
    credential,
    salt_text,
    salted_password,
)

NODE_USER: Final = "barnabas"
"""The name that nodes prove the cluster's secret under."""
ITERATIONS: Final = 16_384
"""10 ms, once at the start of a node."""
_SALT_LABEL: Final = b"barnabas cluster.secret SCRAM-SHA-512 salt\0"
_DECOY_LABEL: Final = b"barnabas cluster.secret decoy salts"


class ClusterSecret:
    """The secret of one cluster; ``previous`` is accepted as well while it is replaced."""

    def __init__(self, cluster_id: str, secret: str, previous: str | None = None) -> None:
        self.passwords: Sequence[str] = (secret,) if previous is None else (secret, previous)
        self.decoy_secret = hmac.digest(secret.encode(), _DECOY_LABEL, "sha512")
        self._salt = salt_text(hashlib.sha512(_SALT_LABEL + cluster_id.encode()).digest())
        self._salted = [self._salted_password(one) for one in self.passwords]
        self._credentials = [
            credential(SHA_512, salted, self._salt, ITERATIONS) for salted in self._salted
        ]

    def find_credentials(self, mechanism: ScramMechanism, name: str) -> Sequence[ScramCredential]:
        """What a node may prove itself by; nothing for any other name."""
        return self._credentials if (mechanism, name) == (SHA_512, NODE_USER) else ()

    def login(self, mechanisms: Sequence[str]) -> SaslLogin:
        """What this node proves to others, by the first of ``mechanisms`` that they take."""
        login = SaslLogin(NODE_USER, self.passwords[0], mechanisms)
        # Known already: no turn of the loop, and no thread, has to derive it.
        login.remember(SHA_512.name, Salting(self._salt, ITERATIONS), self._salted[0])
        return login

    def _salted_password(self, password: str) -> bytes:
        return salted_password(SHA_512, password, self._salt, ITERATIONS)

"""Which proof each listener of a node asks for: mechanisms, passwords and credentials, together.

Source: docs/spec/security.md §2 and §6 (S71).
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from barnabas.broker.settings.node_config import NodeConfig
from barnabas.broker.settings.sasl_settings import PLAIN, ListenerSasl
from barnabas.protocol.oauthbearer import MECHANISM as OAUTHBEARER
from barnabas.protocol.scram import MECHANISMS

from .cluster_secret import NODE_USER, ClusterSecret
from .credential_cache import CredentialCache
from .exchange import Exchange
from .failure_delays import FailureDelays
from .jwks import KeySets
from .oauthbearer import OAuthBearerExchange
from .oauthbearer_tokens import tokens_of
from .plain import Passwords, PlainExchange
from .sasl import SaslTerms
from .scram import FindCredentials, ScramExchange
from .token_cache import TokenCache

_DECOY_LABEL: Final = b"barnabas decoy salts of users"


class ListenerTerms:
    """Makes the terms of listeners; what they share is of the node."""

    def __init__(
        self,
        config: NodeConfig,
        secret: ClusterSecret | None,
        credentials: CredentialCache,
        tokens: TokenCache | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """``tokens`` None: nobody logs in by a delegation token.

        ``now_ms`` is the wall clock, by which bearer tokens hold.
        """
        self._inner = config.inter_broker_listener
        self._receive_bytes_max = config.sasl.receive_bytes_max
        self._secret = secret
        self._credentials = credentials
        self._tokens = tokens
        self._now_ms = now_ms
        self.keys = KeySets()
        """Of those who sign bearer tokens; read while ``keys.run`` runs."""
        self._delays = FailureDelays(config.sasl.failure_delay_ms)
        self._passwords: list[Passwords] = []
        # Of the cluster where nodes share a secret: a decoy that differs from node to node, where
        # a real salt does not, would give itself away.
        seed = secret.decoy_secret if secret is not None else secrets.token_bytes(64)
        self._decoy_secret = hmac.digest(seed, _DECOY_LABEL, "sha512")
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """Logins by listener, mechanism and result."""

    def of(self, listener: str, sasl: ListenerSasl | None) -> SaslTerms | None:
        """What a listener asks for; None where it asks for nothing."""
        if sasl is None:
            return None
        made = self._of_nodes(sasl) if listener == self._inner else self._of_users(sasl)
        return SaslTerms(
            listener=listener,
            mechanisms=made,
            delays=self._delays,
            session_ms=sasl.session_ms,
            receive_bytes_max=self._receive_bytes_max,
            counts=self.counts,
        )

    def close(self) -> None:
        """Give back what checking passwords took."""
        for passwords in self._passwords:
            passwords.close()

    def _of_nodes(self, sasl: ListenerSasl) -> Mapping[str, Callable[[], Exchange]]:
        secret = self._secret
        assert secret is not None, "the settings were judged"
        passwords = {NODE_USER: secret.passwords}
        find = secret.find_credentials
        return self._mechanisms(sasl, passwords, find, secret.decoy_secret, tokens=None)

    def _of_users(self, sasl: ListenerSasl) -> Mapping[str, Callable[[], Exchange]]:
        passwords = {name: (password,) for name, password in sasl.passwords.items()}
        find = self._credentials.find
        made = self._mechanisms(sasl, passwords, find, self._decoy_secret, tokens=self._tokens)
        if sasl.oauthbearer is None:
            return made
        keys = None if sasl.oauthbearer.is_unsecured else self.keys.of(sasl.oauthbearer)
        bearer = tokens_of(sasl.oauthbearer, keys, self._now_ms)
        all_made: dict[str, Callable[[], Exchange]] = {
            **made,
            OAUTHBEARER: partial(OAuthBearerExchange, bearer),
        }
        return {mechanism: all_made[mechanism] for mechanism in sasl.mechanisms}

    def _mechanisms(
        self,
        sasl: ListenerSasl,
        users: Mapping[str, Sequence[str]],
        find: FindCredentials,
        decoy_secret: bytes,
        *,
        tokens: TokenCache | None,
    ) -> Mapping[str, Callable[[], Exchange]]:
        made: dict[str, Callable[[], Exchange]] = {}
        for mechanism in sasl.mechanisms:
            if mechanism == PLAIN:
                passwords = Passwords(users)
                self._passwords.append(passwords)
                made[mechanism] = partial(PlainExchange, passwords)
            elif mechanism in MECHANISMS:
                made[mechanism] = partial(
                    ScramExchange, MECHANISMS[mechanism], find, decoy_secret, tokens
                )
        return made

"""Settings of delegation tokens: the secret that makes them, and how long they hold.

Source: docs/spec/security.md §2 (S37); Kafka 3.9 DelegationTokenManagerConfigs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.protocol.settings import setting

SECRET: Final = "delegation.token.secret.key"  # noqa: S105 - a name
_DAY_MS: Final = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenSettings:
    """Tokens that stand for a login; off without a secret."""

    secret_key: str | None = setting(
        SECRET,
        None,
        "makes delegation tokens, alike on all nodes; unset: there are none",
        is_secret=True,
    )
    master_key: str | None = setting(
        "delegation.token.master.key", None, f"former name of {SECRET}", is_secret=True
    )
    lifetime_ms_max: int = setting(
        "delegation.token.max.lifetime.ms",
        7 * _DAY_MS,
        "no token holds longer, however often it is renewed",
        least=1,
    )
    expiry_ms: int = setting(
        "delegation.token.expiry.time.ms",
        _DAY_MS,
        "a token holds for so long, unless it is renewed",
        least=1,
    )
    check_interval_ms: int = setting(
        "delegation.token.expiry.check.interval.ms",
        3_600_000,
        "how often the controller removes tokens that have ended",
        least=1,
    )

    @property
    def secret(self) -> bytes:
        """What tokens are made of; empty where there are none."""
        key = self.master_key if self.secret_key is None else self.secret_key
        return (key or "").encode()

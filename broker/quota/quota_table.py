"""Which bound is in force for a client, and whose counter it is: the first of eight levels.

Source: docs/spec/security.md §4 (S58); KIP-55, KIP-546.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .entities import DEFAULT, ClientEntity, Default


class Match(NamedTuple):
    """What a client is bound by."""

    bound: float
    counter: tuple[str | None, str | None]
    """User and client id that count together; None: all users, all client ids."""


MATCHES_MAX: Final = 10_000
"""Remembered at once: finding one takes eight looks."""


class QuotaTable:
    """The bounds of one quota by entity."""

    __slots__ = ("_bounds", "_matches")

    def __init__(self) -> None:
        self._bounds: dict[ClientEntity, float] = {}
        self._matches: dict[tuple[str, str], Match | None] = {}

    def __len__(self) -> int:
        return len(self._bounds)

    def set(self, entity: ClientEntity, bound: float | None) -> None:
        """Bound an entity, or (None) no more."""
        self._matches.clear()
        if bound is None:
            self._bounds.pop(entity, None)
        else:
            self._bounds[entity] = bound

    def match(self, user: str, client_id: str) -> Match | None:
        """The bound of the most precise level that has one.

        A default is no shared counter: each user that it applies to has its own.
        """
        if not self._bounds:
            return None
        key = user, client_id
        if key not in self._matches:
            if len(self._matches) >= MATCHES_MAX:
                self._matches.clear()
            self._matches[key] = self._found(user, client_id)
        return self._matches[key]

    def _found(self, user: str, client_id: str) -> Match | None:
        for entity, counter in _levels(user, client_id):
            bound = self._bounds.get(entity)
            if bound is not None:
                return Match(bound, counter)
        return None


def _levels(
    user: str, client_id: str
) -> tuple[tuple[ClientEntity, tuple[str | None, str | None]], ...]:
    both, of_user, of_client = (user, client_id), (user, None), (None, client_id)
    default: Default = DEFAULT
    return (
        (ClientEntity(user, client_id), both),
        (ClientEntity(user, default), both),
        (ClientEntity(user, None), of_user),
        (ClientEntity(default, client_id), both),
        (ClientEntity(default, default), both),
        (ClientEntity(default, None), of_user),
        (ClientEntity(None, client_id), of_client),
        (ClientEntity(None, default), of_client),
    )

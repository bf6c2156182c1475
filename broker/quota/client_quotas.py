"""How long clients are to wait for what they sent, read or had done: three quotas and their rates.

Source: docs/spec/security.md §4 (S57 to S62); Kafka 3.9 ClientQuotaManager and
ClientRequestQuotaManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .entities import (
    CLIENT_KEYS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientEntity,
)
from .quota_table import QuotaTable
from .rate import Rate, Windows
from .recent import Recent

Counter = tuple[str | None, str | None]


class ClientQuota:
    """One quota: a bound by entity, a rate by whom it counts for."""

    def __init__(self, windows: Windows, *, throttle_ms_max: int | None = None) -> None:
        """``throttle_ms_max`` None: as long as it takes."""
        self.table = QuotaTable()
        self._windows = windows
        self._throttle_ms_max = throttle_ms_max
        self._rates: Recent[Counter, Rate] = Recent()

    def record(self, user: str, client_id: str, value: float, now: float) -> int:
        """Count what a client did; the milliseconds that it is to be throttled for."""
        match = self.table.match(user, client_id)
        if match is None:
            return 0
        rate = self._rates.get(match.counter, now, self._new_rate)
        rate.record(value, now)
        throttle_ms = rate.throttle_ms(match.bound, now)
        most = self._throttle_ms_max
        return throttle_ms if most is None else min(throttle_ms, most)

    def take_back(self, user: str, client_id: str, value: float, now: float) -> None:
        """Count no more what was recorded: it is not given after all."""
        match = self.table.match(user, client_id)
        if match is not None:
            self._rates.get(match.counter, now, self._new_rate).record(-value, now)

    def window_most(self, user: str, client_id: str) -> float | None:
        """What the bound allows over all windows, at once; None where there is no bound."""
        match = self.table.match(user, client_id)
        return None if match is None else match.bound * self._windows.whole_s

    def forget(self) -> None:
        """Forget the rates: nobody is bound any more."""
        self._rates.clear()

    def _new_rate(self) -> Rate:
        return Rate(self._windows)


class ClientQuotas:
    """All quotas of users and client ids; those of controller mutations are only kept here."""

    def __init__(self, windows: Windows) -> None:
        self.producer = ClientQuota(windows)
        self.consumer = ClientQuota(windows)
        one_window_ms = round(windows.seconds * 1000)
        self.request = ClientQuota(windows, throttle_ms_max=one_window_ms)
        self.mutations = QuotaTable()
        self.on_first: list[Callable[[], None]] = []
        """Called when somebody is bound and nobody was."""
        self.on_none: list[Callable[[], None]] = []
        """Called when nobody is bound any more."""
        self._tables: Mapping[str, QuotaTable] = {
            PRODUCER_BYTE_RATE: self.producer.table,
            CONSUMER_BYTE_RATE: self.consumer.table,
            REQUEST_PERCENTAGE: self.request.table,
            CONTROLLER_MUTATION_RATE: self.mutations,
        }

    @property
    def is_empty(self) -> bool:
        """Whether nobody is bound by a rate of bytes or requests, so that nothing is counted."""
        return not (self.producer.table or self.consumer.table or self.request.table)

    def set(self, entity: ClientEntity, bounds: Mapping[str, float]) -> None:
        """Have an entity bound by exactly these."""
        was_empty = self.is_empty
        for key in CLIENT_KEYS:
            self._tables[key].set(entity, bounds.get(key))
        if was_empty == self.is_empty:
            return
        if self.is_empty:
            for quota in (self.producer, self.consumer, self.request):
                quota.forget()
        for tell in self.on_first if was_empty else self.on_none:
            tell()

"""Which connections are let in, and when: bounds of the node, its listeners, addresses and time.

The nodes' own listener is bounded by its own settings and by address alone: clients must not be
able to cut nodes off from each other. Source: Kafka 3.9 ConnectionQuotas; KIP-402, KIP-612.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.broker.quota.ip_connection_rates import IpConnectionRates
from barnabas.broker.settings.listener_quotas import UNLIMITED, ListenerQuota, parse_address_quotas

from .descriptors import REASON as TOO_FEW_DESCRIPTORS
from .descriptors import Descriptors

if TYPE_CHECKING:
    from barnabas.broker.settings.node_config import NetworkSettings

log = logging.getLogger(__name__)

BURST_S: Final = 1.0
"""So much of a rate may come at once."""
THROTTLE_S_MAX: Final = 30.0
"""A connection that would be served later than this is turned away: clients give up by then."""
_NO_QUOTA: Final = ListenerQuota()


class CreationRate:
    """At most so many connections a second, after a burst of one second's worth."""

    def __init__(self) -> None:
        self._served_until = 0.0

    def delay_s(self, per_s: int, now: float) -> float:
        """How long one more has to wait for its turn; it is not counted yet."""
        if per_s >= UNLIMITED:
            return 0.0
        return max(0.0, max(self._served_until, now - BURST_S) + 1 / per_s - now)

    def count(self, per_s: int, now: float) -> None:
        """One more is let in."""
        if per_s < UNLIMITED:
            self._served_until = max(self._served_until, now - BURST_S) + 1 / per_s


class ConnectionQuotas:
    """One for the whole node: counts connections, and says which more may come."""

    def __init__(
        self, settings: NetworkSettings, listeners: Mapping[str, ListenerQuota] | None = None
    ) -> None:
        self.address_rates: IpConnectionRates | None = None
        """What quotas say of single addresses; None where nobody reads quotas."""
        self.descriptors = Descriptors()
        self.total = 0
        """Connections on listeners of clients."""
        self._hosts: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._rate = CreationRate()
        self._rates: dict[str, CreationRate] = {}
        self.reconfigure(settings, listeners or {})

    def reconfigure(
        self, settings: NetworkSettings, listeners: Mapping[str, ListenerQuota]
    ) -> None:
        """Other bounds from now on; who is in stays. :meth:`resolve` comes after it."""
        self._settings = settings
        self._listeners = listeners
        self._address_quotas = parse_address_quotas(settings)

    async def resolve(self) -> None:
        """Find the addresses of the host names that have bounds of their own."""
        loop = asyncio.get_running_loop()
        quota = self._address_quotas
        for name, bound in list(quota.items()):
            if _is_address(name):
                continue
            try:
                found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            except (OSError, ValueError) as error:  # ValueError: a label is empty or too long
                log.warning("max.connections.per.ip.overrides: %s is not known: %s", name, error)
                continue
            quota.update({str(address_info[4][0]): bound for address_info in found})

    @property
    def strangers_max(self) -> int:
        """How many peers without proof there may be on listeners of clients."""
        return max(1, self._settings.max_connections // 2)

    def excess(self, listener: str) -> int:
        """How many connections a listener has beyond its own bound, which was lowered."""
        bound = self._listeners.get(listener, _NO_QUOTA).connections_max
        return max(0, self._by_listener[listener] - bound)

    @property
    def excess_in_all(self) -> int:
        """How many listeners of clients have together beyond the node's bound."""
        return max(0, self.total - self._settings.max_connections)

    def admit(
        self, host: str, listener: str, *, is_internal: bool, now: float, descriptor: int = -1
    ) -> str | None:
        """Why one more connection is turned away; None when it may come, and then it is counted.

        ``descriptor`` is the one that it was given, -1 where there is none.
        """
        quota = self._listeners.get(listener, _NO_QUOTA)
        if not is_internal and not self.descriptors.leave_room(descriptor):
            return TOO_FEW_DESCRIPTORS
        is_full = not is_internal and self.total >= self._settings.max_connections
        if is_full or self._by_listener[listener] >= quota.connections_max:
            return "too many connections"
        host_max = self._address_quotas.get(host, self._settings.max_connections_per_ip)
        if self._hosts[host] >= host_max:
            return "too many connections"
        if self._delay_s(quota, listener, is_internal=is_internal, now=now) > THROTTLE_S_MAX:
            return "too many connections a second"
        self.total += not is_internal
        self._hosts[host] += 1
        self._by_listener[listener] += 1
        return None

    def throttle_s(self, listener: str, *, is_internal: bool, now: float) -> float:
        """How long a connection that was let in has to wait until it is served."""
        quota = self._listeners.get(listener, _NO_QUOTA)
        delay = self._delay_s(quota, listener, is_internal=is_internal, now=now)
        if not is_internal:
            self._rate.count(self._settings.max_connection_creation_rate, now)
        if quota.creations_per_s < UNLIMITED:
            self._rates.setdefault(listener, CreationRate()).count(quota.creations_per_s, now)
        return delay

    def closes_after_s(self, host: str, *, is_internal: bool, now: float) -> float:
        """How long a connection beyond the rate of its address is left unread, to be closed then.

        0: it is within the rate, and counts. Nodes may start many at once.
        """
        if self.address_rates is None or is_internal or self.address_rates.is_empty:
            return 0.0
        return self.address_rates.throttle_ms(host, now) / 1000

    def handshakes_per_s(self, listener: str, *, is_internal: bool, unset: int) -> int:
        """How many TLS handshakes may begin each second; ``unset`` where no rate bounds them."""
        quota = self._listeners.get(listener, _NO_QUOTA)
        rates = [quota.creations_per_s]
        if not is_internal:
            rates.append(self._settings.max_connection_creation_rate)
        slowest = min(rates)
        return unset if slowest >= UNLIMITED else slowest

    def release(self, host: str, listener: str, *, is_internal: bool) -> None:
        """A connection that was let in has ended."""
        self.total -= not is_internal
        for counts, key in ((self._hosts, host), (self._by_listener, listener)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]

    def _delay_s(
        self, quota: ListenerQuota, listener: str, *, is_internal: bool, now: float
    ) -> float:
        own = self._rates.get(listener)
        delay = own.delay_s(quota.creations_per_s, now) if own else 0.0
        if is_internal:
            return delay
        return max(delay, self._rate.delay_s(self._settings.max_connection_creation_rate, now))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

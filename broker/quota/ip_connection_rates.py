"""How many connections an address may open a second; who opens more is made to wait, then closed.

The wait is the point: an address that is closed at once comes back at once.
Source: docs/spec/security.md §4 (S64); KIP-612; Kafka 3.9 ConnectionQuotas.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from .entities import Default, Name
from .rate import Rate, Windows
from .recent import Recent


class IpConnectionRates:
    """Bounds by address, and a rate for each address that has one."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._bounds: dict[str, float] = {}
        self._default: float | None = None
        self._rates: Recent[str, Rate] = Recent()

    @property
    def is_empty(self) -> bool:
        """Whether no address is bound."""
        return not self._bounds and self._default is None

    def replace(self, bounds: Mapping[Name, float]) -> None:
        """Have exactly these addresses bound."""
        self._bounds = {
            canonical(name): bound
            for name, bound in bounds.items()
            if not isinstance(name, Default)
        }
        self._default = next(
            (bound for name, bound in bounds.items() if isinstance(name, Default)), None
        )
        if self.is_empty:
            self._rates.clear()

    def throttle_ms(self, host: str, now: float) -> int:
        """Count one connection and return 0; or how long it waits before it is closed, uncounted.

        At most one window, so that what waits here does not pile up.
        """
        host = canonical(host)
        bound = self._bounds.get(host, self._default)
        if bound is None:
            return 0
        rate = self._rates.get(host, now, lambda: Rate(self._windows))
        rate.record(1, now)
        throttle_ms = rate.throttle_ms(bound, now)
        if throttle_ms:
            rate.record(-1, now)
        return min(throttle_ms, round(self._windows.seconds * 1000))


def is_address(text: str) -> bool:
    """Whether this is an address and no host name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def canonical(host: str) -> str:
    """One spelling of an address; an IPv4 address is one however a socket of IPv6 shows it.

    Else a client would have two rates, or none, by the socket that it comes to.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)

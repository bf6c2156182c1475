"""Metrics of TLS: handshakes, and when certificates end.

Source: docs/spec/security.md §1 (S12, S18); no label holds a user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.broker.net.listener import Listener
from barnabas.broker.runtime.latency import BOUNDS_S

from .exposition import family, histogram

RESULTS = ("done", "failed")


def tls_families(listeners: Mapping[str, Listener]) -> Iterator[str]:
    """Of the listeners that speak TLS; nothing where none does."""
    speaking = {name: listener for name, listener in listeners.items() if listener.tls is not None}
    if not speaking:
        return
    yield from family(
        "barnabas_tls_handshakes_total",
        "counter",
        "Handshakes that peers began, by what became of them.",
        (
            ({"listener": name, "result": result}, listener.tls_handshakes[result])
            for name, listener in speaking.items()
            for result in RESULTS
        ),
    )
    yield from histogram(
        "barnabas_tls_handshake_seconds",
        "From a peer's first byte to the end of its handshake, of those that were done.",
        BOUNDS_S,
        (
            ({"listener": name}, found.buckets, found.seconds)
            for name, listener in speaking.items()
            for found in (listener.tls_handshake_time,)
        ),
    )
    yield from family(
        "barnabas_certificate_not_after_seconds",
        "gauge",
        "When the listener's certificate ends, in seconds since 1970.",
        (
            ({"listener": name}, listener.tls.not_after.timestamp())
            for name, listener in speaking.items()
            if listener.tls is not None
        ),
    )

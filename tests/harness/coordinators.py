"""Waiting until the coordinator of a group is found and has loaded."""

from __future__ import annotations

from collections.abc import Sequence

from tests.harness.raw_connection import Address, Closed, RawConnection

from .raw_calls import NO_ERROR, fetch_offsets, find_coordinator
from .waiting import eventually

ANSWER_S = 10.0
"""Who does not answer for so long, a paused node for example, is asked again."""


def coordinator(addresses: Sequence[Address], group: str, within_s: float = 90.0) -> Address:
    """Where the coordinator of a group listens, once it answers for the group.

    Any of ``addresses`` that answers is asked. librdkafka's AdminClient needs this after a start:
    told three times within 0.3 s that there is none, it hangs and later aborts the process (2.16).
    """

    def ask() -> Address | None:
        return next(filter(None, (_asked(address, group) for address in addresses)), None)

    address = eventually(ask, within_s=within_s, what=f"a coordinator of {group}")
    assert address is not None
    return address


def _asked(address: Address, group: str) -> Address | None:
    try:
        with RawConnection(address, ANSWER_S) as link:
            found = find_coordinator(link, group)
        if found.error != NO_ERROR:
            return None
        with RawConnection((found.host, found.port), ANSWER_S) as link:
            _, code = fetch_offsets(link, group, "any", [0])
    except (OSError, Closed):
        return None
    return (found.host, found.port) if code == NO_ERROR else None

"""Requests that claim to come from a follower: believed on the inter-broker listener only.

Source: cluster.md section 2.14; reliability.md section 8.2 (fake follower, CVE-2018-1288).
"""

from __future__ import annotations

from barnabas.protocol.errors import CorruptRequest

from .call import Call


def refuse_strangers(call: Call) -> None:
    """Raises CorruptRequest, which closes the connection, for a replica id on a client listener."""
    if call.request.replica_id >= 0 and not call.peer.is_internal:
        raise CorruptRequest("a replica id on a client listener")

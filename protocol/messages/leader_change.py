"""LeaderChange: a control record by which a metadata quorum notes its leader.

Only read, so that the log of a KRaft cluster can be dumped. Source: golden-kafka39.json.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, UUID, array, message, wire


@message()
class Voter:
    """One member of the quorum."""

    voter_id: int = wire(INT32)
    voter_directory_id: bytes = wire(UUID, since=1)


@message(versions=(0, 1), flexible=0)
class LeaderChangeMessage:
    """Who leads, who may vote, and who voted for the leader."""

    version: int = wire(INT16)
    leader_id: int = wire(INT32)
    voters: Sequence[Voter] = wire(array(Voter))
    granting_voters: Sequence[Voter] = wire(array(Voter))

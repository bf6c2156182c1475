"""The znode ``/barnabas/voters``: every election claims it, so a successor knows what binds whom.

Source: docs/spec/reliability.md §3.1 (c') and (d); docs/beacons.md points 13 and 14.
"""

from __future__ import annotations

import logging
from typing import Any

from barnabas.broker.liveness.voter_set import ZOOKEEPER_ALONE, VoterSet
from barnabas.client.zookeeper.interface import (
    Check,
    Create,
    Op,
    Set,
    ZooKeeper,
    ensure,
    read_if_any,
)
from barnabas.protocol.zookeeper import znodes

log = logging.getLogger(__name__)

MISSING = -1
"""The version of a znode that does not exist."""


class VotersZnode:
    """The znode as one node's elections have found it, and as its terms change it."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self.inherited: VoterSet | None = ZOOKEEPER_ALONE
        """What binds the predecessor; None when it could not be read."""
        self._zookeeper = zookeeper
        self._version = MISSING

    @property
    def version(self) -> int:
        """As last known; -1 when it is not."""
        return self._version

    async def claim(self, predecessor: int) -> Op:
        """What an election adds to its multi: the same voters, bound by the next epoch.

        ``predecessor`` is the epoch to be followed. Where it is not the one in the znode, that
        controller did not know of voters. The operation fails if they are changed meanwhile.
        """
        found = await read_if_any(self._zookeeper, znodes.VOTERS)
        if found is None:
            await ensure(self._zookeeper, znodes.OURS)
            self.inherited, self._version = ZOOKEEPER_ALONE, MISSING
            return Create(znodes.VOTERS, _payload(ZOOKEEPER_ALONE, predecessor + 1))
        data, stat = found
        self._version = stat.version
        try:
            record = znodes.VotersRecord.from_json(data)
        except ValueError as problem:
            log.error("cannot read who votes, so all sessions are waited for: %s", problem)
            self.inherited = None
            return Check(znodes.VOTERS, stat.version)
        is_bound = record.controller_epoch == predecessor
        self.inherited = _voter_set(record) if is_bound else ZOOKEEPER_ALONE
        return Set(znodes.VOTERS, _payload(self.inherited, predecessor + 1), stat.version)

    def claimed(self, result: Any) -> None:
        """The election was won; ``result`` is what its multi gave for :meth:`claim`."""
        self._took_effect(result)

    async def change(self, voters: VoterSet, epoch: int) -> Op:
        """The operation that puts other voters there, on condition of the version known.

        Put it into a multi that fails in a later epoch.
        """
        if self._version == MISSING:
            found = await read_if_any(self._zookeeper, znodes.VOTERS)
            if found is None:
                return Create(znodes.VOTERS, _payload(voters, epoch))
            self._version = found[1].version
        return Set(znodes.VOTERS, _payload(voters, epoch), self._version)

    def changed(self, result: Any) -> None:
        """The change was confirmed with this result."""
        self._took_effect(result)

    def lost_track(self) -> None:
        """A change failed: the version is not what it was thought to be."""
        self._version = MISSING

    def _took_effect(self, result: Any) -> None:
        if isinstance(result, str):  # created
            self._version = 0
        elif result is not None:  # set; a check gives nothing
            self._version = result.version


def _payload(voters: VoterSet, epoch: int) -> bytes:
    return znodes.VotersRecord(
        voters=tuple(sorted(voters.voters)),
        session_ms=round(voters.session * 1000),
        controller_epoch=epoch,
    ).to_json()


def _voter_set(record: znodes.VotersRecord) -> VoterSet:
    return VoterSet(frozenset(record.voters), record.session_ms / 1000)

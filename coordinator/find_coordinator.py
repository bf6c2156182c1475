"""FindCoordinator: which node leads the partition of a group, or of a transactional id.

Source: docs/spec/coordinator.md §1.2 and §1.3; docs/spec/transactions.md §1.1 and §2.8. Nothing is
said about the group or id itself: whether it exists, or is still being loaded, the coordinator
tells when it is asked.

While there is no coordinator an answer is held back for :data:`ANSWER_WAIT_S`, since one is about
to be elected or created: librdkafka's AdminClient hangs for good when it is told three times within
a third of a second that there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import (
    REMEMBERED_LENGTH_MAX,
    group_partition,
    hash_partition,
    java_hash,
)
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

from .cooperative import CooperativeScheduler
from .group import Respond
from .ports import OFFSETS_TOPIC, TRANSACTION_TOPIC, Topics, TransactionLookup

KEYS_SINCE: Final = 4
"""From this version on several keys in one request (KIP-699)."""
GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
SHARE_SINCE: Final = 6
"""Share groups have no coordinator in a Kafka 3.9 with ZooKeeper either (KIP-932)."""
NO_TRANSACTIONS: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""The one code that ends a transactional producer at once in every client; librdkafka takes
any other for "ask again" until its patience is over."""


ANSWER_WAIT_S: Final = 1.0
"""How long a request waits for a coordinator to be elected."""


CHARACTERS_PER_STEP: Final = 500
"""Of a name: to hash so many costs as much as to look up a name that was hashed before."""


@dataclass(slots=True, eq=False)
class _Lookup:
    """A FindCoordinator request, until it is answered."""

    keys: Sequence[str]
    key_type: int
    version: int
    listener: str
    respond: Respond
    hashes: dict[str, int] = field(default_factory=dict)
    """Of long names: 30 us a kilobyte, and the metadata may change often meanwhile."""
    is_resolving: bool = False
    """Some of the keys are looked up, the others in turns to come."""
    is_outdated: bool = False
    """The metadata changed meanwhile."""
    is_final: bool = False

    def partition(self, key: str, count: int) -> int:
        """As :func:`group_partition`, which does not keep what it found out of a long name."""
        if len(key) <= REMEMBERED_LENGTH_MAX:
            return group_partition(key, count)
        hashed = self.hashes.get(key)
        if hashed is None:
            hashed = self.hashes[key] = java_hash(key)
        return hash_partition(hashed, count)


class FindCoordinatorHandler:
    """Serves FindCoordinator; any node does, coordinator or not."""

    def __init__(
        self,
        topics: Topics,
        transactions: TransactionLookup | None,
        loop: asyncio.AbstractEventLoop,
        scheduler: CooperativeScheduler,
    ) -> None:
        """``transactions`` is None where transactions are off."""
        self._topics = topics
        self._transactions = transactions
        self._loop = loop
        self._scheduler = scheduler
        self._waiting: dict[_Lookup, asyncio.TimerHandle] = {}
        self._is_closed = False

    def find_coordinator(
        self, request: FindCoordinatorRequest, version: int, listener: str, respond: Respond
    ) -> None:
        """Answer for each key by itself with an endpoint on ``listener``.

        The first question after a state topic in a new cluster starts its creation.
        """
        keys = request.coordinator_keys if version >= KEYS_SINCE else [request.key]
        self._resolve(_Lookup(keys, request.key_type, version, listener, respond))

    def retry_pending(self) -> None:
        """The metadata changed: who waits may be answered now."""
        for lookup in list(self._waiting):
            self._resolve(lookup)

    def close(self) -> None:
        """Let nobody wait from now on."""
        self._is_closed = True
        for lookup in list(self._waiting):
            self._expire(lookup)

    def _expire(self, lookup: _Lookup) -> None:
        self._waiting.pop(lookup).cancel()
        lookup.is_final = True
        self._resolve(lookup)

    def _resolve(self, lookup: _Lookup) -> None:
        """Look for the coordinator of each key, for very many or long ones in several turns."""
        if lookup.is_resolving:
            lookup.is_outdated = True
            return
        lookup.is_resolving = True
        lookup.is_outdated = False
        found: list[Coordinator] = []
        self._scheduler.run(
            lookup.keys,
            lambda key: found.append(self._coordinator_of(key, lookup)),
            lambda: self._resolved(lookup, found),
            _weight,
        )

    def _resolved(self, lookup: _Lookup, found: list[Coordinator]) -> None:
        """Reply, unless a coordinator is missing and that may change."""
        lookup.is_resolving = False
        missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
        may_change = (
            lookup.key_type in (GROUP, TRANSACTION) and not lookup.is_final and not self._is_closed
        )
        if may_change and any(one.error_code == missing for one in found):
            if lookup not in self._waiting:
                timer = self._loop.call_later(ANSWER_WAIT_S, self._expire, lookup)
                self._waiting[lookup] = timer
            if lookup.is_outdated:
                self._resolve(lookup)
            return
        timer_or_none = self._waiting.pop(lookup, None)
        if timer_or_none is not None:
            timer_or_none.cancel()
        if lookup.version >= KEYS_SINCE:
            lookup.respond(FindCoordinatorResponse(coordinators=found))
        else:
            lookup.respond(_single_response(found[0]))

    def _coordinator_of(self, key: str, lookup: _Lookup) -> Coordinator:
        key_type = lookup.key_type
        if key_type == TRANSACTION:
            return self._transaction_coordinator(key, lookup)
        if key_type == SHARE and lookup.version >= SHARE_SINCE:
            return _no_coordinator(
                key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "share groups are not served"
            )
        if key_type != GROUP:
            return _no_coordinator(key, ErrorCode.INVALID_REQUEST, f"no key type {key_type}")
        count = self._topics.partition_count(OFFSETS_TOPIC)
        if count is None:
            self._topics.create_offsets_topic()
            return _no_coordinator(
                key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the offsets topic is new"
            )
        partition = lookup.partition(key, count)
        return _led(key, self._topics.coordinator_endpoint(partition, lookup.listener))

    def _transaction_coordinator(self, key: str, lookup: _Lookup) -> Coordinator:
        topics = self._transactions
        if topics is None:
            return _no_coordinator(key, NO_TRANSACTIONS, "transactions are not served")
        count = topics.partition_count(TRANSACTION_TOPIC)
        if count is None:
            topics.create_transaction_topic()
            return _no_coordinator(
                key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the transaction log is new"
            )
        partition = lookup.partition(key, count)
        return _led(key, topics.coordinator_endpoint(partition, lookup.listener))


def _led(key: str, endpoint: tuple[int, str, int] | None) -> Coordinator:
    if endpoint is None:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "no leader")
    node_id, host, port = endpoint
    return Coordinator(key=key, node_id=node_id, host=host, port=port, error_message="")


def _weight(key: str) -> int:
    return 1 + len(key) // CHARACTERS_PER_STEP


def _single_response(found: Coordinator) -> FindCoordinatorResponse:
    """As versions before 4 answer."""
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or None,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _no_coordinator(key: str, code: ErrorCode, why: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=why)

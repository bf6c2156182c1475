"""FindCoordinator: which node leads the offsets partition of a group.

Source: coordinator.md sections 1.2 and 1.3. Nothing is said about the group itself: whether it
exists, or is still being loaded, the coordinator tells when it is asked.

While there is no coordinator an answer is held back for :data:`PATIENCE_S`, since one is about to
be elected or created: librdkafka's AdminClient hangs for good when it is told three times within
a third of a second that there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import group_partition
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

from .group import Reply
from .ports import OFFSETS_TOPIC, Topics

KEYS_SINCE: Final = 4
"""From this version on several keys in one request (KIP-699)."""
GROUP: Final = 0
TRANSACTION: Final = 1
NO_TRANSACTIONS: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""The one code that ends a transactional producer at once in every client; librdkafka takes
any other for "ask again" until its patience is over."""


PATIENCE_S: Final = 1.0
"""How long a question without an answer waits for one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    keys: Sequence[str]
    key_type: int
    version: int
    listener: str
    reply: Reply


class Discovery:
    """Serves FindCoordinator; any node does, coordinator or not."""

    def __init__(self, topics: Topics, loop: asyncio.AbstractEventLoop) -> None:
        self._topics = topics
        self._loop = loop
        self._waiting: dict[_Question, asyncio.TimerHandle] = {}
        self._is_closed = False

    def find_coordinator(
        self, request: FindCoordinatorRequest, version: int, listener: str, reply: Reply
    ) -> None:
        """Answer for each key by itself with an endpoint on ``listener``.

        The first question after the offsets topic in a new cluster starts its creation.
        """
        keys = request.coordinator_keys if version >= KEYS_SINCE else [request.key]
        question = _Question(keys, request.key_type, version, listener, reply)
        if not self._answer(question, at_last=self._is_closed):
            timer = self._loop.call_later(PATIENCE_S, self._give_up, question)
            self._waiting[question] = timer

    def look_again(self) -> None:
        """The metadata changed: who waits may be answered now."""
        for question in list(self._waiting):
            if self._answer(question):
                self._waiting.pop(question).cancel()

    def close(self) -> None:
        """Let nobody wait from now on."""
        self._is_closed = True
        for question, timer in self._waiting.items():
            timer.cancel()
            self._answer(question, at_last=True)
        self._waiting.clear()

    def _give_up(self, question: _Question) -> None:
        del self._waiting[question]
        self._answer(question, at_last=True)

    def _answer(self, question: _Question, *, at_last: bool = False) -> bool:
        """Reply, unless a coordinator is missing and that may change; True when replied."""
        found = [self._found(key, question.key_type, question.listener) for key in question.keys]
        missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not at_last and any(one.error_code == missing for one in found):
            return False
        if question.version >= KEYS_SINCE:
            question.reply(FindCoordinatorResponse(coordinators=found))
        else:
            question.reply(_single(found[0]))
        return True

    def _found(self, key: str, key_type: int, listener: str) -> Coordinator:
        if key_type == TRANSACTION:
            return _none(key, NO_TRANSACTIONS, "transactions are not served")
        if key_type != GROUP:
            return _none(key, ErrorCode.INVALID_REQUEST, f"no key type {key_type}")
        count = self._topics.partition_count(OFFSETS_TOPIC)
        if count is None:
            self._topics.create_offsets_topic()
            return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the offsets topic is new")
        endpoint = self._topics.coordinator_endpoint(group_partition(key, count), listener)
        if endpoint is None:
            return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "no leader")
        node_id, host, port = endpoint
        return Coordinator(key=key, node_id=node_id, host=host, port=port, error_message="")


def _single(found: Coordinator) -> FindCoordinatorResponse:
    """As versions before 4 answer."""
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or None,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _none(key: str, code: ErrorCode, why: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=why)

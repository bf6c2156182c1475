"""What a client does about each error code, and the backoff before the next attempt.

Waits double and are spread by chance, so that the clients of a broker that comes back do not all
come back in the same moment.
Source: docs/spec/coordinator.md §1.9; KIP-580 (exponential backoff).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from random import Random
from typing import Final

from barnabas.protocol.errors import ErrorCode

from .client_config import ClientConfig
from .errors import KafkaError


class Remedy(Enum):
    """The way on after an error code."""

    GIVE_UP = "tell the caller"
    WAIT = "ask the same broker again, later"
    LOOK_AGAIN = "forget who serves this, find out again, then ask"


REMEDIES: Final = {
    ErrorCode.NOT_COORDINATOR: Remedy.LOOK_AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Remedy.LOOK_AGAIN,
    ErrorCode.NETWORK_EXCEPTION: Remedy.LOOK_AGAIN,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Remedy.LOOK_AGAIN,
    ErrorCode.LEADER_NOT_AVAILABLE: Remedy.LOOK_AGAIN,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Remedy.LOOK_AGAIN,
    ErrorCode.NOT_CONTROLLER: Remedy.LOOK_AGAIN,
    ErrorCode.REPLICA_NOT_AVAILABLE: Remedy.LOOK_AGAIN,
    ErrorCode.LISTENER_NOT_FOUND: Remedy.LOOK_AGAIN,
    ErrorCode.FENCED_LEADER_EPOCH: Remedy.LOOK_AGAIN,
    ErrorCode.UNKNOWN_LEADER_EPOCH: Remedy.LOOK_AGAIN,
    ErrorCode.KAFKA_STORAGE_ERROR: Remedy.LOOK_AGAIN,
    ErrorCode.OFFSET_NOT_AVAILABLE: Remedy.LOOK_AGAIN,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Remedy.WAIT,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: Remedy.WAIT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Remedy.WAIT,
    ErrorCode.CONCURRENT_TRANSACTIONS: Remedy.WAIT,
}
"""Codes not listed end the call; those that need a group's member to act are the consumer's."""

UNKNOWN_TOPIC_S: Final = 3.5
"""How long a topic is asked for that no broker knows.

CreateTopics waits two seconds for the other brokers to hear of a new topic, and is answered then,
whether all have heard or not. Longer waiting would only hide a typing error.
"""


def remedy(codes: Iterable[ErrorCode]) -> tuple[Remedy, ErrorCode]:
    """The way on after an answer with these codes, and the code that decided it.

    LOOK_AGAIN goes before WAIT: the broker found then may need no waiting.
    """
    chosen, why = Remedy.GIVE_UP, ErrorCode.NONE
    for code in codes:
        step = REMEDIES.get(code, Remedy.GIVE_UP)
        if step is Remedy.LOOK_AGAIN:
            return step, code
        if step is Remedy.WAIT:
            chosen, why = step, code
    return chosen, why


def may_succeed_later(error: KafkaError) -> bool:
    """Whether trying again, perhaps elsewhere, may help; a broker that is down may be back."""
    return error.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE


def backoff(config: ClientConfig, random: Random, failures: int) -> float:
    """Seconds to wait after one failure more than ``failures`` in a row.

    Doubles from ``retry.backoff.ms``, with a fifth of it up or down by chance.
    """
    # Bounded: 2 to the power of a count that nobody bounds overflows.
    wait_ms = min(config.retry_backoff_ms * 2.0 ** min(failures, 30), config.retry_backoff_ms_max)
    return wait_ms / 1000 * random.uniform(0.8, 1.2)


class Attempts:
    """The tries of one call: how long until the next one, and whether there is one.

    Times are in seconds of the caller's clock, which begins at ``now``.
    """

    def __init__(self, config: ClientConfig, random: Random, now: float) -> None:
        self._deadline = now + config.api_timeout_ms / 1000
        self._config = config
        self._random = random
        self._made = 0
        self._unknown_since: float | None = None

    def backoff_after(self, why: ErrorCode, now: float) -> float | None:
        """Seconds to wait before the next try; None when the last one was the last."""
        backoff_s = backoff(self._config, self._random, self._made)
        self._made += 1
        deadline = self._deadline
        if why is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._unknown_since = None
        else:
            if self._unknown_since is None:
                self._unknown_since = now
            deadline = min(deadline, self._unknown_since + UNKNOWN_TOPIC_S)
        return backoff_s if now + backoff_s < deadline else None

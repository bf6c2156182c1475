"""What the brokers' own topics need to be, whoever creates or changes them.

Source: docs/spec/coordinator.md §3.8; docs/spec/transactions.md §1.1; Kafka's
GroupCoordinatorConfig (offsets topic, cleanup.policy).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.coordinator.ports import STATE_TOPICS, TRANSACTION_TOPIC
from barnabas.protocol.errors import ErrorCode, Refused

POLICY: Final = "cleanup.policy"
COMPACT: Final = "compact"


def with_needed(topic: str, configs: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """The settings of a new topic; a state topic is compacted where it does not say."""
    return {POLICY: COMPACT, **configs} if topic in STATE_TOPICS else configs


def refuse_loss(topic: str, overrides: Mapping[str, str | None]) -> None:
    """Raise Refused(INVALID_CONFIG) for a state topic that would not be only compacted.

    Deleted by age, as topics are by default, it loses what groups committed a week ago, or the
    producer ids and epochs that fence zombies. Kafka lets that happen.
    """
    if topic in STATE_TOPICS and overrides.get(POLICY) != COMPACT:
        what = "producers are fenced by" if topic == TRANSACTION_TOPIC else "groups committed"
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"{POLICY} of {topic} must be {COMPACT}: what {what} would be deleted",
        )

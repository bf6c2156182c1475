"""What the brokers' own topics need to be, whoever creates or changes them.

Source: docs/spec/coordinator.md §3.8; Kafka's GroupCoordinatorConfig (offsets topic,
cleanup.policy).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.errors import ErrorCode, Refused

POLICY: Final = "cleanup.policy"
COMPACT: Final = "compact"


def with_needed(topic: str, configs: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """The settings of a new topic; the offsets topic is compacted where it does not say."""
    return {POLICY: COMPACT, **configs} if topic == OFFSETS_TOPIC else configs


def refuse_loss(topic: str, overrides: Mapping[str, str | None]) -> None:
    """Raise Refused(INVALID_CONFIG) for an offsets topic that would not be only compacted.

    Deleted by age, as topics are by default, it loses what groups committed a week ago. Kafka
    lets that happen.
    """
    if topic == OFFSETS_TOPIC and overrides.get(POLICY) != COMPACT:
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"{POLICY} of {topic} must be {COMPACT}: what groups committed would be deleted",
        )

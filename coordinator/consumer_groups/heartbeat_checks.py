"""What a ConsumerGroupHeartbeat has to look like, whatever the group is.

Source: docs/spec/consumer-groups.md §1.1, C8; Kafka's GroupCoordinatorService (4.x).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

from .member import BACK_SOON
from .regex_resolution import compiled
from .topic_regex_syntax import InvalidTopicRegex

JOIN: Final = 0
LEAVE: Final = -1


class Refusal(NamedTuple):
    """Why a heartbeat is refused."""

    code: ErrorCode
    message: str | None = None


def request_problem(
    request: ConsumerGroupHeartbeatRequest, version: int, config: CoordinatorConfig
) -> Refusal | None:
    """What is wrong with a request by itself."""
    wrong = _blank_field(request, version) or _wrong_join(request) or _wrong_epoch(request)
    if wrong:
        return Refusal(ErrorCode.INVALID_REQUEST, wrong)
    assignor = request.server_assignor
    if assignor is not None and assignor not in config.assignor_names:
        known = ", ".join(config.assignor_names)
        message = f"ServerAssignor {assignor} is not supported. Supported assignors: {known}."
        return Refusal(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    if request.subscribed_topic_regex:
        try:
            compiled(request.subscribed_topic_regex)
        except InvalidTopicRegex as problem:
            message = f"SubscribedTopicRegex cannot be read: {problem}"
            return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
    return None


def _blank_field(request: ConsumerGroupHeartbeatRequest, version: int) -> str:
    """White space counts as nothing, null is allowed where there may be nothing."""
    epoch = request.member_epoch
    may_lack_id = version < 1 and (epoch == JOIN or epoch < LEAVE)
    if not request.member_id.strip() and not may_lack_id:
        return "MemberId can't be empty."
    if not request.group_id.strip():
        return "GroupId can't be empty."
    for name, value in (("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            return f"{name} can't be empty."
    return ""


def _wrong_join(request: ConsumerGroupHeartbeatRequest) -> str:
    if request.member_epoch != JOIN:
        return ""
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or len(request.topic_partitions):
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return ""


def _wrong_epoch(request: ConsumerGroupHeartbeatRequest) -> str:
    epoch = request.member_epoch
    if epoch < BACK_SOON:
        return f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    if epoch == BACK_SOON and request.instance_id is None:
        return "InstanceId can't be null."
    return ""

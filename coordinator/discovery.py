"""FindCoordinator: which node leads the offsets partition of a group.

Source: coordinator.md sections 1.2 and 1.3. Nothing is said about the group itself: whether it
exists, or is still being loaded, the coordinator tells when it is asked.
"""

from __future__ import annotations

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


class Discovery:
    """Serves FindCoordinator; any node does, coordinator or not."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def find_coordinator(
        self, request: FindCoordinatorRequest, version: int, listener: str, reply: Reply
    ) -> None:
        """Answer for each key by itself with an endpoint on ``listener``.

        The first question after the offsets topic in a new cluster starts its creation.
        """
        if version >= KEYS_SINCE:
            found = [
                self._found(key, request.key_type, listener) for key in request.coordinator_keys
            ]
            reply(FindCoordinatorResponse(coordinators=found))
            return
        found_one = self._found(request.key, request.key_type, listener)
        reply(
            FindCoordinatorResponse(
                error_code=found_one.error_code,
                error_message=found_one.error_message or None,
                node_id=found_one.node_id,
                host=found_one.host,
                port=found_one.port,
            )
        )

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


def _none(key: str, code: ErrorCode, why: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=why)

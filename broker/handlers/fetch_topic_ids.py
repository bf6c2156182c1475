"""Fetch since version 13: topics go by id, and whoever asks the wrong node is told the right one.

Source: KIP-516 (ids, codes 100, 103 and 106), KIP-951 (leaders' addresses, from version 16);
Kafka 3.9 KafkaApis.handleFetchRequest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import fetch as messages

from .call import Call
from .cooperative import Turn
from .leader_hints import LeaderHints

IDS_SINCE: Final = 13
STATE_SINCE: Final = 15
"""From here a follower says in another field who it is (KIP-903)."""
LEADERS_SINCE: Final = 16
UNRESOLVED: Final = "\0"
"""Begins what stands for the name of a topic whose id is not known here: no topic is called so."""
WRONG_LEADER: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def name_of(topic_id: bytes, names: Mapping[bytes, str]) -> str:
    """The name of a topic, or what stands for it as long as its id is not known here."""
    return names.get(topic_id) or UNRESOLVED + topic_id.hex()


class FetchTopicIds:
    """Knows ids and leaders by the metadata of this node."""

    def __init__(self, cache: MetadataCache, leaders: LeaderHints) -> None:
        self._cache = cache
        self._leaders = leaders

    def name(self, call: Call) -> Mapping[bytes, str] | None:
        """Fill in what older versions say otherwise; gives the names of ids, None below v13."""
        request: messages.FetchRequest = call.request
        if call.version < IDS_SINCE:
            return None
        if call.version >= STATE_SINCE and request.replica_state is not None:
            request.replica_id = request.replica_state.replica_id
        names = self._cache.snapshot.names
        for topic in request.topics:
            topic.topic = name_of(topic.topic_id, names)
        for gone in request.forgotten_topics_data:
            gone.topic = name_of(gone.topic_id, names)
        return names

    async def name_in_turns(self, call: Call) -> Mapping[bytes, str] | None:
        """As :meth:`name`, for very many topics; by the metadata at its beginning."""
        request: messages.FetchRequest = call.request
        topics, request.topics = request.topics, ()
        forgotten, request.forgotten_topics_data = request.forgotten_topics_data, ()
        names, turn = self.name(call), Turn()
        if names is not None:
            for named in (topics, forgotten):
                for topic in named:
                    topic.topic = name_of(topic.topic_id, names)
                    await turn.step()
        request.topics, request.forgotten_topics_data = topics, forgotten
        return names

    def check(self, topic: str, topic_id: bytes) -> None:
        """Raises Refused for an id that is not known, or that the topic does not have any more.

        A session remembers names; a topic may be deleted and made anew meanwhile.
        """
        if topic.startswith(UNRESOLVED):
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        known = self._cache.snapshot.topic_ids.get(topic)
        if known is not None and known != topic_id:
            raise Refused(ErrorCode.INCONSISTENT_TOPIC_ID)

    def tell_leaders(self, call: Call, answer: messages.FetchResponse) -> messages.FetchResponse:
        """Name leader, epoch and address where another node is to be asked."""
        if call.version < LEADERS_SINCE:
            return answer
        wrong = self._wrong(answer)
        answer.node_endpoints = self._leaders.fill_current_leaders(
            wrong, call.peer.listener, messages
        )
        return answer

    async def tell_leaders_in_turns(
        self, call: Call, answer: messages.FetchResponse
    ) -> messages.FetchResponse:
        """The same, of very many partitions."""
        if call.version < LEADERS_SINCE:
            return answer
        nodes: dict[int, messages.NodeEndpoint] = {}
        turn = Turn()
        for one in self._wrong(answer):
            for node in self._leaders.fill_current_leaders([one], call.peer.listener, messages):
                nodes[node.node_id] = node
            await turn.step()
        answer.node_endpoints = list(nodes.values())
        return answer

    @staticmethod
    def _wrong(
        answer: messages.FetchResponse,
    ) -> list[tuple[str, int, messages.PartitionResult]]:
        return [
            (topic.topic, result.partition_index, result)
            for topic in answer.responses
            for result in topic.partitions
            if result.error_code in WRONG_LEADER
        ]

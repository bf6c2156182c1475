"""ListConfigResources: what has settings. Kafka's tool asks before it shows those of a group.

Topics and nodes are told whether they set anything or not, groups only if they do: of those there
may be settings before the group. Source: docs/spec/protocol.md §2; KIP-1142.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import list_config_resources as messages

from .alter_group_configs import GROUP
from .call import Call, Handler
from .cooperative import map_in_turns
from .describe_configs import NODE, TOPIC

LOGGER: Final = 8
CLIENT_METRICS: Final = 16
"""Of these two there are none here."""
TYPES: Final = (TOPIC, NODE, LOGGER, CLIENT_METRICS, GROUP)
TYPES_SINCE: Final = 1
"""Before this version nothing but metrics of clients is asked for."""


class ListConfigResourcesHandler:
    """Answers from what this node knows."""

    def __init__(self, cache: MetadataCache, groups: GroupConfigs) -> None:
        self._cache = cache
        self._groups = groups

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.LIST_CONFIG_RESOURCES: self.list}

    async def list(self, call: Call) -> messages.ListConfigResourcesResponse:
        """Name the resources of each type that is asked for; 35 where one of them is unknown."""
        request: messages.ListConfigResourcesRequest = call.request
        wanted = frozenset(request.resource_types) or frozenset(TYPES)
        if call.version < TYPES_SINCE:
            wanted = frozenset({CLIENT_METRICS})
        if not wanted <= frozenset(TYPES):
            return messages.ListConfigResourcesResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
            )
        found = []
        for kind in sorted(wanted):
            found += await map_in_turns(
                lambda name, kind=kind: messages.ConfigResource(  # type: ignore[misc]
                    resource_name=name, resource_type=kind
                ),
                self._names(kind),
            )
        return messages.ListConfigResourcesResponse(
            error_code=ErrorCode.NONE, config_resources=found
        )

    def _names(self, kind: int) -> Iterable[str]:
        snapshot = self._cache.snapshot
        if kind == TOPIC:
            return sorted(snapshot.topics)
        if kind == NODE:
            return [str(node) for node in sorted(snapshot.brokers)]
        return self._groups.names() if kind == GROUP else ()

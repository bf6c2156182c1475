"""ApiVersions: what this listener serves, from version 0 on.

Source: docs/spec/protocol.md §0 (min is always 0) and §1.3; docs/spec/consumer-groups.md §1;
KIP-511. A version nobody knows yet is answered by net/dispatch.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
)
from barnabas.protocol.zookeeper.broker_registration import CONSUMER_GROUPS_FEATURE

from .call import Call, Handler, Peer

OF_CONSUMER_GROUPS: Final = frozenset(
    {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}
)
"""Clients look at these keys alone, whatever features say (docs/spec/consumer-groups.md §1)."""
ZERO_LEVEL_SINCE: Final = 4
SOFTWARE_SINCE: Final = 3
_is_software = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?").fullmatch
"""Of both the name and the version of a client's software; an empty one is none."""
_SUPPORTED: Final = (SupportedFeature(name=CONSUMER_GROUPS_FEATURE, min_version=0, max_version=1),)
_FINALIZED: Final = (
    FinalizedFeature(name=CONSUMER_GROUPS_FEATURE, max_version_level=1, min_version_level=1),
)

Offered = Callable[[Peer], Sequence[tuple[int, int]]]
"""Key and highest version of what a peer may ask: net/dispatch.py knows."""


class ApiVersionsHandler:
    """Lists what is registered and allowed on the peer's listener."""

    def __init__(
        self,
        supported_versions: Offered,
        *,
        offers_consumer_groups: Callable[[], bool] = lambda: True,
        features_epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        """``offers_consumer_groups``: whether groups of KIP-848 are on in all of the cluster now.

        ``features_epoch`` grows when features may have changed; clients believe the highest.
        """
        self._offered = supported_versions
        self._offers_consumer_groups = offers_consumer_groups
        self._features_epoch = features_epoch

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.API_VERSIONS: self.api_versions}

    def api_versions(self, call: Call) -> ApiVersionsResponse:
        """The APIs, each from version 0; those of consumer groups while they are on (C1, C2).

        A client whose software has no proper name or version is told 42, as by Kafka.
        """
        request: ApiVersionsRequest = call.request
        if call.version >= SOFTWARE_SINCE and not (
            _is_software(request.client_software_name)
            and _is_software(request.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        is_on = self._offers_consumer_groups()
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=0, max_version=highest)
                for key, highest in self._offered(call.peer)
                if is_on or key not in OF_CONSUMER_GROUPS
            ],
            # readers of version 3 fail at a lowest level of 0 (KAFKA-17011)
            supported_features=_SUPPORTED if call.version >= ZERO_LEVEL_SINCE else (),
            finalized_features=_FINALIZED if is_on else (),
            finalized_features_epoch=self._features_epoch(),
        )

"""ApiVersions: what this listener serves, from version 0 on.

Source: docs/spec/protocol.md §0 (min is always 0) and §1.3. A version nobody knows yet is answered
by net/dispatch.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

from .call import Call, Handler, Peer

Offered = Callable[[Peer], Sequence[tuple[int, int]]]
"""Key and highest version of what a peer may ask: net/dispatch.py knows."""


class ApiVersionsHandler:
    """Lists what is registered and allowed on the peer's listener."""

    def __init__(self, supported_versions: Offered) -> None:
        self._offered = supported_versions

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.API_VERSIONS: self.api_versions}

    def api_versions(self, call: Call) -> ApiVersionsResponse:
        """The APIs, each from version 0."""
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=0, max_version=highest)
                for key, highest in self._offered(call.peer)
            ],
            finalized_features_epoch=0,  # of none: see update_features.py
        )

"""DescribeCluster: the nodes and the controller, for administrators.

Source: docs/spec/protocol.md §2; KIP-700, KIP-919 for the endpoint type.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Final

from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_cluster

from .call import Call, Handler
from .metadata import CLUSTER_OPERATIONS, UNTOLD, controller_id, wait_for_nodes

BROKERS: Final = 1
CONTROLLERS: Final = 2


class DescribeClusterHandler:
    """Answers from the latest snapshot."""

    def __init__(self, cache: MetadataCache, cluster_id: str) -> None:
        self._cache = cache
        self._cluster_id = cluster_id

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.DESCRIBE_CLUSTER: self.answer}

    def answer(
        self, call: Call
    ) -> (
        describe_cluster.DescribeClusterResponse
        | Coroutine[Any, Any, describe_cluster.DescribeClusterResponse]
    ):
        """Describe; as with Metadata, not before there are nodes to name, or for a second."""
        request: describe_cluster.DescribeClusterRequest = call.request
        if request.endpoint_type != BROKERS:
            return self._refusal(request.endpoint_type)
        if self._cache.snapshot.has_nodes(call.peer.listener):
            return self.describe(call)
        return self._describe_soon(call)

    async def _describe_soon(self, call: Call) -> describe_cluster.DescribeClusterResponse:
        await wait_for_nodes(self._cache, call)
        return self.describe(call)

    def describe(self, call: Call) -> describe_cluster.DescribeClusterResponse:
        """Describe the live nodes that have the peer's listener."""
        request: describe_cluster.DescribeClusterRequest = call.request
        snapshot = self._cache.snapshot
        listener = call.peer.listener
        brokers = [
            describe_cluster.Broker(broker_id=node, host=host, port=port, rack=broker.rack)
            for node, broker in sorted(snapshot.brokers.items())
            if listener in broker.endpoints
            for host, port in [broker.endpoints[listener]]
        ]
        tells_operations = request.include_cluster_authorized_operations
        return describe_cluster.DescribeClusterResponse(
            error_code=ErrorCode.NONE,
            endpoint_type=BROKERS,
            cluster_id=self._cluster_id,
            controller_id=controller_id(snapshot),
            brokers=brokers,
            cluster_authorized_operations=CLUSTER_OPERATIONS if tells_operations else UNTOLD,
        )

    def _refusal(self, endpoint_type: int) -> describe_cluster.DescribeClusterResponse:
        is_known = endpoint_type == CONTROLLERS
        return describe_cluster.DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if is_known
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="brokers answer for brokers only: endpoint type 1",
            endpoint_type=endpoint_type,
            cluster_id=self._cluster_id,
            brokers=[],
        )

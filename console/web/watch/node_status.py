"""What a node of Barnabas says of itself on its metrics listener: leases, standings, standbys.

Where it listens is told by DescribeConfigs of the node; a node that tells nothing, or a Kafka, has
no status. What comes is read defensively: it may be of a later release.
Source: docs/spec/console.md §2.2; docs/operations.md, "Status and health".
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any, Final

from barnabas.client.cluster import Cluster
from barnabas.client.errors import KafkaError, raise_for
from barnabas.client.http_answers import opened
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_configs

BROKER: Final = 4
VERSION: Final = 1
TIMEOUT_S: Final = 3.0
BYTES_MOST: Final = 8 << 20
_LISTENER: Final = "metrics.listener"
_ADVERTISED: Final = "metrics.advertised.listener"
_ANYWHERE: Final = ("", "0.0.0.0", "[::]", "::")  # noqa: S104 - compared, not bound

Status = dict[str, Any]


class StatusReader:
    """Asks nodes for their status; ``token`` is shown where one is given."""

    def __init__(self, cluster: Cluster, token: str | None) -> None:
        self._cluster = cluster
        self._token = token

    async def status_of(self, node: int) -> Status | None:
        """The status of one node; None where it tells none. Raises KafkaError, OSError."""
        address = await self._address_of(node)
        if address is None:
            return None
        return await asyncio.to_thread(self._fetched, f"http://{address}/status")

    async def _address_of(self, node: int) -> str | None:
        request = describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.Resource(
                    resource_type=BROKER,
                    resource_name=str(node),
                    configuration_keys=[_LISTENER, _ADVERTISED],
                )
            ]
        )
        answer = await self._cluster.ask(node, request)
        raise_for(answer.results[0].error_code, answer.results[0].error_message or "")
        told = {config.name: config.value for config in answer.results[0].configs}
        address = told.get(_ADVERTISED) or told.get(_LISTENER)
        if not address:
            return None
        host, _, port = address.rpartition(":")
        known = self._cluster.topology.nodes.get(node)
        if host in _ANYWHERE and known is not None:
            host = known.host
        return f"{host}:{port}"

    def _fetched(self, url: str) -> Status:
        """In a thread; raises OSError, KafkaError for what is no status."""
        request = urllib.request.Request(url)  # noqa: S310 - http, put together above
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        # No proxy: a node is asked directly, wherever the environment points.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opened(opener, request, TIMEOUT_S) as answer:
            data = answer.read(BYTES_MOST)
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{url} tells no status that we know")
        return found


def part(status: Status | None, *names: str) -> Any:
    """What stands at a path of names; None for what is not there."""
    found: Any = status
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def rows(status: Status | None, name: str) -> list[dict[str, Any]]:
    """The entries of a list; none where there is none."""
    found = part(status, name)
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def number(value: Any) -> float | None:
    """A number, or None for whatever else was told."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None


def whole(value: Any) -> int | None:
    """A whole number, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: Any) -> str | None:
    """A text, or None."""
    return value if isinstance(value, str) else None

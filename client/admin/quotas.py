"""Quotas of users, client ids and addresses: asks for them, sets them and takes them back.

Source: docs/spec/protocol.md §2 (DescribeClientQuotas, AlterClientQuotas); KIP-546.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.cluster import Cluster
from barnabas.client.errors import raise_for
from barnabas.protocol.messages import alter_client_quotas, describe_client_quotas

EXACT: Final = 0
DEFAULT: Final = 1

Entity = Mapping[str, str | None]
"""Name by type (``user``, ``client-id``, ``ip``); None: whoever has no quota of its own."""


@dataclass(frozen=True, slots=True)
class QuotaDescription:
    """What one entity is bound by."""

    entity: Entity
    quotas: Mapping[str, float]


async def describe_quotas(cluster: Cluster, wanted: Entity) -> list[QuotaDescription]:
    """The quotas of all that have every part that is ``wanted``, and perhaps others."""
    request = describe_client_quotas.DescribeClientQuotasRequest(
        components=[
            describe_client_quotas.Component(
                entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name
            )
            for kind, name in wanted.items()
        ],
        strict=False,
    )
    answer = await cluster.to_any(request, lambda answer: [answer.error_code])
    raise_for(answer.error_code, answer.error_message or "")
    return [
        QuotaDescription(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


async def alter_quotas(
    cluster: Cluster, entity: Entity, quotas: Mapping[str, float], removed: Iterable[str] = ()
) -> None:
    """Set and take back single quotas of one entity, all or none; raises KafkaError."""
    operations = [
        alter_client_quotas.Op(key=key, value=value, remove=False) for key, value in quotas.items()
    ]
    operations += [alter_client_quotas.Op(key=key, value=0.0, remove=True) for key in removed]
    request = alter_client_quotas.AlterClientQuotasRequest(
        entries=[
            alter_client_quotas.Entry(
                entity=[
                    alter_client_quotas.Entity(entity_type=kind, entity_name=name)
                    for kind, name in entity.items()
                ],
                ops=operations,
            )
        ],
        validate_only=False,
    )
    answer = await cluster.to_any(request, _codes)
    for entry in answer.entries:
        raise_for(entry.error_code, entry.error_message or "")


def _codes(answer: Any) -> Iterable[int]:
    return (entry.error_code for entry in answer.entries)

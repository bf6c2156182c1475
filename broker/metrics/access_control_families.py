"""Metrics of access control: how many entries hold, and what was decided by them.

Source: docs/spec/security.md §3 (S45: decisions that are remembered are not made again).
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.authorizer.access_control import AccessControl

from .exposition import family, single


def access_control_families(acls: AccessControl | None) -> Iterator[str]:
    """Nothing where no authorizer is configured."""
    if acls is None:
        return
    resources = acls.cache.snapshot.resources.values()
    yield from single(
        "barnabas_acls",
        "gauge",
        "Entries of access control lists.",
        sum(len(found.acls) for found in resources),
    )
    yield from family(
        "barnabas_authorization_decisions_total",
        "counter",
        "Decisions made; those that a connection remembers are not made again.",
        (
            ({"result": result, "type": kind.word}, count)
            for (result, kind), count in sorted(acls.authorizer.decided.items())
        ),
    )

"""Whose quota a call counts for, and what its answer says of a throttle.

Source: docs/spec/security.md §4 (S58, S61, S63).
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.quota.controller_mutation import ControllerMutationQuotas, MutationQuota

from .call import Call


def client_of(call: Call) -> tuple[str, str]:
    """User and client id as quotas know them: no client id is the empty one."""
    return call.peer.principal.removeprefix("User:"), call.client_id or ""


def mutation_quota(
    mutations: ControllerMutationQuotas | None, call: Call, *, strict_since: int | None
) -> MutationQuota:
    """What the call may have changed; versions before ``strict_since`` are only throttled."""
    if mutations is None:
        return MutationQuota(None, lambda: 0.0, is_strict=False)
    is_strict = strict_since is not None and call.version >= strict_since
    return mutations.of(*client_of(call), is_strict=is_strict)


def throttled(call: Call, answer: Any, throttle_ms: int) -> Any:
    """The answer, which says for how long its peer is not read from now on."""
    if throttle_ms:
        call.peer.throttle(throttle_ms / 1000)
        answer.throttle_time_ms = max(answer.throttle_time_ms, throttle_ms)
    return answer

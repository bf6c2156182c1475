"""Users with SCRAM passwords, over the protocol: names and mechanisms, set and taken away.

Passwords are salted here: only what comes of that is sent. Source: docs/spec/protocol.md §2
(DescribeUserScramCredentials, AlterUserScramCredentials); KIP-554.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas.client.cluster import Cluster
from barnabas.client.errors import known_code, raise_for
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_user_scram_credentials as alter_api
from barnabas.protocol.messages import describe_user_scram_credentials as describe_api
from barnabas.protocol.scram import MECHANISMS, salt_text, salted_password

_SALT_BYTES: Final = 17
_BY_NUMBER: Final = {mechanism.number: name for name, mechanism in MECHANISMS.items()}


async def describe_scram_users(cluster: Cluster) -> dict[str, dict[str, int]]:
    """Iterations by mechanism, by user; raises KafkaError."""
    request = describe_api.DescribeUserScramCredentialsRequest(users=None)
    answer = await cluster.to_controller(request, lambda answer: [answer.error_code])
    raise_for(answer.error_code, answer.error_message or "")
    return {
        result.user: {
            _BY_NUMBER.get(info.mechanism, str(info.mechanism)): info.iterations
            for info in result.credential_infos
        }
        for result in sorted(answer.results, key=lambda result: result.user)
        if known_code(result.error_code) is ErrorCode.NONE
    }


async def set_scram_password(
    cluster: Cluster, user: str, mechanism: str, password: str, iterations: int
) -> None:
    """Give a user a password for one mechanism, in place of an older one. Raises KafkaError."""
    salt, known = salt_text(secrets.token_bytes(_SALT_BYTES)), MECHANISMS[mechanism]
    # In a thread: it is slow on purpose.
    salted = await asyncio.to_thread(salted_password, known, password, salt, iterations)
    upsertion = alter_api.Upsertion(
        name=user,
        mechanism=known.number,
        iterations=iterations,
        salt=salt,
        salted_password=salted,
    )
    await _alter(cluster, [], [upsertion])


async def remove_scram_passwords(cluster: Cluster, users: Mapping[str, Iterable[str]]) -> None:
    """Take the passwords for these mechanisms away from each user. Raises KafkaError."""
    deletions = [
        alter_api.Deletion(name=user, mechanism=MECHANISMS[mechanism].number)
        for user, mechanisms in users.items()
        for mechanism in mechanisms
    ]
    await _alter(cluster, deletions, [])


async def _alter(
    cluster: Cluster, deletions: list[alter_api.Deletion], upsertions: list[alter_api.Upsertion]
) -> None:
    request = alter_api.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    answer = await cluster.to_controller(request, _codes)
    for result in answer.results:
        raise_for(result.error_code, result.error_message or f"user {result.user}")


def _codes(answer: Any) -> Iterable[int]:
    return (result.error_code for result in answer.results)

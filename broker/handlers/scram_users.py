"""DescribeUserScramCredentials and AlterUserScramCredentials: users that log in by SCRAM.

Passwords never come here, but what is derived from them, and that is derived once more and
forgotten. Source: docs/spec/security.md §2 (S33); KIP-554.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from barnabas.broker.security.credential_cache import CredentialCache
from barnabas.broker.security.scram_credentials import ScramCredentials
from barnabas.client.zookeeper.interface import ZooKeeperError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import alter_user_scram_credentials as altering
from barnabas.protocol.messages import describe_user_scram_credentials as describing
from barnabas.protocol.scram import (
    BY_NUMBER,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    ScramCredential,
    credential,
)
from barnabas.protocol.zookeeper.user_znodes import user_entity

from .call import Call, Handler
from .cooperative import Turn
from .zookeeper_failures import unreachable

log = logging.getLogger(__name__)

SALT_BYTES_MAX: Final = 1024
_TWICE: Final = "A user credential cannot be altered twice in the same request"

Change = altering.Deletion | altering.Upsertion


class ScramUsersHandler:
    """Tells who has which credentials, and changes them where this node is the controller."""

    def __init__(
        self,
        cache: CredentialCache,
        credentials: ScramCredentials,
        *,
        is_controller: Callable[[], bool],
    ) -> None:
        self._cache = cache
        self._credentials = credentials
        self._is_controller = is_controller

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self.describe,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self.alter,
        }

    async def describe(self, call: Call) -> describing.DescribeUserScramCredentialsResponse:
        """Describe the users that are named, or all: mechanisms and iterations, nothing else."""
        users: Iterable[describing.User] = call.request.users or ()
        named = Counter([user.name for user in users])
        # What ZooKeeper has now: whoever altered a user at another node wants to see it.
        await self._refresh([user_entity(name) for name in named] or None)
        results, turn = [], Turn()
        for name in named or sorted(self._cache.users):
            await turn.step()
            results.append(self._described(name, is_twice=named[name] > 1))
        return describing.DescribeUserScramCredentialsResponse(error_message=None, results=results)

    async def _refresh(self, entities: list[str] | None) -> None:
        try:
            await (self._cache.load() if entities is None else self._cache.follow(entities))
        except ZooKeeperError as error:
            log.warning("described users from memory: %r", error)

    def _described(self, name: str, *, is_twice: bool) -> describing.Result:
        result = describing.Result(user=name, error_message=None, credential_infos=[])
        found = self._cache.of(name)
        if is_twice:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: "
                f"{name}"
            )
        elif not found:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = (
                f"Attempt to describe a user credential that does not exist: {name}"
            )
        result.credential_infos = [
            describing.CredentialInfo(
                mechanism=MECHANISMS[mechanism].number, iterations=one.iterations
            )
            for mechanism, one in sorted(found.items())
            if not is_twice
        ]
        return result

    async def alter(self, call: Call) -> altering.AlterUserScramCredentialsResponse:
        """Change each user by itself, all of its changes in one write."""
        request: altering.AlterUserScramCredentialsRequest = call.request
        by_user: dict[str, list[Change]] = {}
        changes: list[Change] = [*request.deletions, *request.upsertions]
        for change in changes:
            by_user.setdefault(change.name, []).append(change)
        results, turn = [], Turn()
        for name, wanted in by_user.items():
            await turn.step(len(wanted))
            result = altering.Result(user=name, error_message=None)
            try:
                await self._alter_one(name, wanted)
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
            except ZooKeeperError as error:
                failed = unreachable(error)
                result.error_code, result.error_message = failed.code, failed.message
            results.append(result)
        return altering.AlterUserScramCredentialsResponse(results=results)

    async def _alter_one(self, name: str, changes: list[Change]) -> None:
        if not self._is_controller():
            raise Refused(ErrorCode.NOT_CONTROLLER)
        wanted = _judged(name, changes)
        await self._credentials.change(name, wanted)
        log.info("altered the credentials of a user name=%r mechanisms=%s", name, sorted(wanted))
        # Not only when the note arrives: whoever asks this node next finds the change.
        await self._cache.follow([user_entity(name)])


def _judged(name: str, changes: list[Change]) -> dict[str, ScramCredential | None]:
    """The changes by mechanism; raises Refused with Kafka's codes, in Kafka's order."""
    if not name:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if any(change.mechanism not in BY_NUMBER for change in changes):
        raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    upsertions = [change for change in changes if isinstance(change, altering.Upsertion)]
    for upsertion in upsertions:
        _check_iterations(upsertion.iterations)
    if len({change.mechanism for change in changes}) != len(changes):
        raise Refused(ErrorCode.DUPLICATE_RESOURCE, _TWICE)
    wanted: dict[str, ScramCredential | None] = {
        BY_NUMBER[change.mechanism].name: None for change in changes
    }
    wanted.update((BY_NUMBER[one.mechanism].name, _derived(one)) for one in upsertions)
    return wanted


def _check_iterations(iterations: int) -> None:
    if iterations < ITERATIONS_MIN:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if iterations > ITERATIONS_MAX:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")


def _derived(upsertion: altering.Upsertion) -> ScramCredential:
    mechanism = BY_NUMBER[upsertion.mechanism]
    salt, salted = bytes(upsertion.salt), bytes(upsertion.salted_password)
    if not 0 < len(salt) <= SALT_BYTES_MAX or len(salted) != mechanism.digest_bytes:
        reason = f"needs a salt, and a salted password of {mechanism.digest_bytes} bytes"
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, reason)
    return credential(mechanism, salted, salt, upsertion.iterations)

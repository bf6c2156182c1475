"""Delegation tokens of one node: made, renewed, ended, removed, and followed in ZooKeeper.

Any node makes and changes any token; the controller removes those that have ended.
Source: docs/spec/security.md §2 (S37); KIP-48, KIP-373; Kafka 3.9 DelegationTokenManagerZk.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from barnabas.broker.settings.delegation_token_settings import DelegationTokenSettings
from barnabas.client.zookeeper.interface import (
    BadVersion,
    NoNode,
    PayloadTooLarge,
    Stat,
    ZooKeeper,
    ZooKeeperError,
    read_if_any,
)
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.names import uuid_text
from barnabas.protocol.zookeeper import token_znodes as znodes
from barnabas.protocol.zookeeper.token_znodes import TokenRecord

from .delegation_token_changes import TokenChanges
from .token_cache import DelegationToken, TokenCache

log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 20
"""Writes lost in a row to others who change the same token."""
LOOK_S: Final = 60.0
"""How often a node looks whether it has become the one that removes tokens."""

T = TypeVar("T")


class DelegationTokens:
    """What a node with ``delegation.token.secret.key`` has; ``load`` comes before it serves."""

    def __init__(
        self,
        settings: DelegationTokenSettings,
        zookeeper: ZooKeeper,
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._zookeeper = zookeeper
        self._now_ms = now_ms
        self.cache = TokenCache(settings.secret, now_ms)
        self._changes = TokenChanges(zookeeper, self.cache, now_ms)
        self.load = self._changes.load
        self.catch_up = self._changes.follow
        """Read what other nodes have noted by now."""

    async def create(
        self, owner: str, requester: str, renewers: Sequence[str], lifetime_ms: int
    ) -> DelegationToken:
        """Make a token; ``lifetime_ms`` of 0 or less is the longest there is.

        Raises Refused(42) for one too long to be read again, and ZooKeeperError.
        """
        now_ms = self._now_ms()
        longest_ms = self._settings.lifetime_ms_max
        max_ms = now_ms + (min(lifetime_ms, longest_ms) if lifetime_ms > 0 else longest_ms)
        record = TokenRecord(
            token_id=_new_id(),
            owner=owner,
            requester=requester,
            renewers=tuple(renewers),
            issue_ms=now_ms,
            max_ms=max_ms,
            expiry_ms=min(max_ms, now_ms + self._settings.expiry_ms),
        )
        data = record.to_json()
        if len(data) > znodes.BYTES_MAX:
            raise Refused(ErrorCode.INVALID_REQUEST, "too many renewers")
        try:
            await self._zookeeper.create(znodes.token_path(record.token_id), data)
        except PayloadTooLarge:
            raise Refused(ErrorCode.INVALID_REQUEST, "too many renewers") from None
        await self._changed(record.token_id, record)
        log.info("made a delegation token id=%s owner=%.255r", record.token_id, owner)
        return self.cache.made_of(record)

    async def renew(self, principal: str, hmac: bytes, period_ms: int) -> int:
        """Have a token hold for longer; until when it does. ``period_ms`` below 0 is the default.

        Raises Refused (62, 63, 66) and ZooKeeperError.
        """
        period_ms = self._settings.expiry_ms if period_ms < 0 else period_ms
        return await self._set_expiry(principal, hmac, period_ms)

    async def expire(self, principal: str, hmac: bytes, period_ms: int) -> int:
        """Have a token end after ``period_ms``, or at once where that is below 0; when it ends.

        Raises Refused (62, 63, 66) and ZooKeeperError.
        """
        if period_ms >= 0:
            return await self._set_expiry(principal, hmac, period_ms)
        token_id = (await self._found(principal, hmac)).record.token_id
        now_ms = self._now_ms()
        await self._remove(token_id, version=-1)
        return now_ms

    async def run(self, is_controller: Callable[[], bool]) -> None:
        """Follow ZooKeeper, and remove what has ended while this node is the controller."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._changes.run())
            tasks.create_task(self._sweep_often(is_controller))

    async def _sweep_often(self, is_controller: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        interval_s = self._settings.check_interval_ms / 1000
        due_at = loop.time()
        while True:
            if not is_controller():
                due_at = loop.time()  # at once, when it is elected
            elif loop.time() >= due_at:
                due_at = loop.time() + interval_s
                await self._sweep()
            await asyncio.sleep(min(interval_s, LOOK_S))

    async def _sweep(self) -> None:
        try:
            await self.sweep()
        except ZooKeeperError as error:
            log.warning("could not remove delegation tokens that have ended: %r", error)

    async def sweep(self) -> None:
        """Remove all tokens that have ended."""
        now_ms = self._now_ms()
        for token in list(self.cache.tokens):
            if not token.record.has_ended(now_ms):
                continue
            token_id = token.record.token_id
            found = await self._read(token_id)
            # What is here may be old: another node may have renewed it.
            if found is not None and not found[0].has_ended(now_ms):
                await self._changes.read([token_id])
                continue
            await self._remove(token_id, version=-1 if found is None else found[1].version)
            log.info("removed a delegation token that has ended id=%s", token_id)

    async def _set_expiry(self, principal: str, hmac: bytes, period_ms: int) -> int:
        token_id = (await self._found(principal, hmac)).record.token_id
        for _ in range(ATTEMPTS_MAX):
            found = await self._read(token_id)
            if found is None:
                break
            record, stat = found
            now_ms = self._now_ms()
            if record.has_ended(now_ms):
                raise Refused(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            expiry_ms = min(record.max_ms, now_ms + period_ms)
            wanted = replace(record, expiry_ms=expiry_ms)
            try:
                # By version: a token that another node just ended must not come back.
                await self._zookeeper.set(
                    znodes.token_path(token_id), wanted.to_json(), stat.version
                )
            except BadVersion:
                continue
            except NoNode:
                break
            await self._changed(token_id, wanted)
            return expiry_ms
        else:
            raise ZooKeeperError(f"others keep changing the token {token_id}")
        await self._changes.read([token_id])
        raise Refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)

    async def _found(self, principal: str, hmac: bytes) -> DelegationToken:
        """The token of a secret that ``principal`` may change; raises Refused (62, 63)."""
        token = self.cache.with_hmac(hmac)
        if token is None:
            await self.catch_up()  # another node may just have made it
            token = self.cache.with_hmac(hmac)
        if token is None:
            raise Refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if principal != token.record.owner and principal not in token.record.renewers:
            raise Refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    async def _read(self, token_id: str) -> tuple[TokenRecord, Stat] | None:
        found = await read_if_any(self._zookeeper, znodes.token_path(token_id))
        if found is None:
            return None
        try:
            return TokenRecord.from_json(token_id, found[0]), found[1]
        except ValueError:
            return None

    async def _remove(self, token_id: str, version: int) -> None:
        try:
            await self._zookeeper.delete(znodes.token_path(token_id), version)
        except NoNode:
            pass
        except BadVersion:
            return  # renewed meanwhile
        await self._changed(token_id, None)

    async def _changed(self, token_id: str, record: TokenRecord | None) -> None:
        """Here at once, and a note for all others."""
        self.cache.put(token_id, record)
        await self._zookeeper.create(
            f"{znodes.CHANGES}/{znodes.CHANGE_PREFIX}", token_id.encode(), sequence=True
        )


def _new_id() -> str:
    """A random uuid as text; none that a command would take for an option (Kafka makes those)."""
    while True:
        text = uuid_text(uuid.uuid4().bytes)
        if not text.startswith("-"):
            return text

"""A value that is read when somebody looks, with its age and what went wrong since.

Source: docs/spec/console.md §2.1 (two speeds; errors belong to panels).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from barnabas.client.errors import KafkaError
from barnabas.protocol.settings import ConfigError

T = TypeVar("T")
K = TypeVar("K")

FAILURES: Final = (KafkaError, ConfigError, OSError, TimeoutError)
"""What asking a cluster may raise: ConfigError when a certificate was replaced by a bad one."""
RETRY_S: Final = 2.0
"""After a failure nobody is asked again for so long."""
PATIENCE_S: Final = 2.0
"""A page waits so long for what is new where something older is known."""
GLANCE_S: Final = 0.05
"""And so long for what takes long anyway: it is there when the page asks again."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a value could not be read; Kafka's name of the error, or ours."""

    code: str
    message: str
    since_ms: int
    next_try_ms: int

    def as_json(self) -> dict[str, Any]:
        """For programs, and for the panel that shows it."""
        return {
            "code": self.code,
            "message": self.message,
            "since_ms": self.since_ms,
            "next_try_ms": self.next_try_ms,
        }


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """The last good value (None: there never was one), when it was read, and what failed since."""

    value: T | None
    at_ms: int | None
    problem: Problem | None

    def state(self) -> dict[str, Any]:
        """Age and problem, for the head of a panel."""
        return {"at_ms": self.at_ms, "problem": self.problem and self.problem.as_json()}


class Source(Generic[T]):
    """Asks at most every ``fresh_s`` seconds, however many look, and only while somebody does."""

    def __init__(self, ask: Callable[[], Awaitable[T]], fresh_s: float) -> None:
        self._ask = ask
        self.fresh_s = fresh_s
        """May be changed: what is large is asked for more rarely."""
        self.patience_s = PATIENCE_S
        """And not waited for, unless something was changed."""
        self._changes = self._seen_changes = 0
        """How often something was changed, and how often before what is known was asked for."""
        self._value: T | None = None
        self._at_ms: int | None = None
        self._problem: Problem | None = None
        self._due = 0.0
        self._asking: asyncio.Task[None] | None = None

    async def read(self) -> Reading[T]:
        """What is known, asked for anew when it is due; never raises for what the cluster says.

        A first look waits for the answer, later ones for ``patience_s``.
        """
        if self._asking is None and time.monotonic() >= self._due:
            self._asking = asyncio.create_task(self._renew(), name="console source")
        if (asking := self._asking) is not None:
            is_outdated = self._changes != self._seen_changes
            later_s = PATIENCE_S if is_outdated else self.patience_s
            patience = None if self._at_ms is None else later_s
            await asyncio.wait([asking], timeout=patience)
            if asking.done() and not asking.cancelled():
                asking.result()  # what the cluster says is caught; a mistake of ours is told
        return Reading(self._value, self._at_ms, self._problem)

    def known(self) -> Reading[T]:
        """What is known, without asking anybody."""
        return Reading(self._value, self._at_ms, self._problem)

    def expire(self) -> None:
        """Ask anew at the next look: something was changed."""
        self._due = 0.0
        self._changes += 1

    def close(self) -> None:
        """Ask no more; what is asked now is given up."""
        if self._asking is not None:
            self._asking.cancel()

    async def _renew(self) -> None:
        changes = self._changes
        try:
            self._value = await self._ask()
            self._at_ms = now_ms()
            self._problem = None
            self._seen_changes = changes
            self._due = time.monotonic() + self.fresh_s if changes == self._changes else 0.0
        except FAILURES as error:
            self._fail(error)
        finally:
            self._asking = None

    def _fail(self, error: Exception) -> None:
        self._due = time.monotonic() + RETRY_S
        since = now_ms() if self._problem is None else self._problem.since_ms
        self._problem = problem_of(error, since)


class Sources(Generic[K, T]):
    """A source for each key, the most recently looked at ``most`` of them."""

    def __init__(self, ask: Callable[[K], Awaitable[T]], fresh_s: float, most: int = 500) -> None:
        self._ask = ask
        self.fresh_s = fresh_s
        self._most = most
        self._by_key: OrderedDict[K, Source[T]] = OrderedDict()

    async def read(self, key: K) -> Reading[T]:
        """As :meth:`Source.read`."""
        return await self.source(key).read()

    def source(self, key: K) -> Source[T]:
        """The source of one key, made when it is looked at first."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = Source(lambda: self._ask(key), self.fresh_s)
        self._by_key.move_to_end(key)
        while len(self._by_key) > self._most:
            self._by_key.popitem(last=False)[1].close()
        return found

    def expire(self) -> None:
        """Ask anew for all of them."""
        for source in self._by_key.values():
            source.expire()

    def close(self) -> None:
        """As :meth:`Source.close`."""
        for source in self._by_key.values():
            source.close()


def problem_of(error: Exception, since_ms: int | None = None) -> Problem:
    """What a failed request says to the reader of a page."""
    at = now_ms()
    code = error.code.name if isinstance(error, KafkaError) else type(error).__name__
    message = error.message if isinstance(error, KafkaError) else str(error)
    return Problem(code, message, since_ms or at, at + int(RETRY_S * 1000))


def now_ms() -> int:
    """The wall clock, milliseconds since 1970."""
    return time.time_ns() // 1_000_000

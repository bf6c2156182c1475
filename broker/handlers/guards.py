"""What stands before the handlers where an authorizer is configured: the ways in which APIs deny.

    request -> Guard -> is all of it allowed?  yes -> handler -> answer
                                               no  -> what is left -> handler -> answer, and codes
                                                      for what was denied

A denied name never reaches a handler: so it has no side effect, and its answer does not depend on
whether it exists. The common case, all allowed, makes no object. authorization.py says which guard
stands before which API. Source: docs/spec/security.md §3 (S54; the matrix).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from barnabas.broker.authorizer.authorizer import Authorizer
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.protocol.acl import CLUSTER_NAME, Operation, ResourceType
from barnabas.protocol.api import ApiKey

from .call import Answer, Call, Handler, PendingResponse, is_coroutine, response_of
from .cooperative import TURN_STEPS, Turn, run_to_end

DENIED: Final = "Authorization failed."
"""What is told where a message goes with the code."""

Steps = Generator[None, None, Answer]


class Right(NamedTuple):
    """Something that may be done with resources of a type."""

    operation: Operation
    resource_type: ResourceType

    def __str__(self) -> str:
        return f"{self.operation.word} {self.resource_type.word}"


READ_TOPIC: Final = Right(Operation.READ, ResourceType.TOPIC)
WRITE_TOPIC: Final = Right(Operation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC: Final = Right(Operation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC: Final = Right(Operation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC: Final = Right(Operation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC: Final = Right(Operation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS: Final = Right(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_TOPIC_CONFIGS: Final = Right(Operation.ALTER_CONFIGS, ResourceType.TOPIC)
READ_GROUP: Final = Right(Operation.READ, ResourceType.GROUP)
DESCRIBE_GROUP: Final = Right(Operation.DESCRIBE, ResourceType.GROUP)
DELETE_GROUP: Final = Right(Operation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP_CONFIGS: Final = Right(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP)
ALTER_GROUP_CONFIGS: Final = Right(Operation.ALTER_CONFIGS, ResourceType.GROUP)
WRITE_ID: Final = Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_ID: Final = Right(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
CREATE_CLUSTER: Final = Right(Operation.CREATE, ResourceType.CLUSTER)
ALTER_CLUSTER: Final = Right(Operation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER: Final = Right(Operation.DESCRIBE, ResourceType.CLUSTER)
CLUSTER_ACTION: Final = Right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS: Final = Right(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS: Final = Right(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
IDEMPOTENT_WRITE: Final = Right(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


@dataclass(frozen=True, slots=True)
class GuardContext:
    """What guards know of their node."""

    authorizer: Authorizer
    is_controller: Callable[[], bool]
    metadata: MetadataCache

    def may(
        self,
        call: Call,
        right: Right,
        name: str = CLUSTER_NAME,
        count: int = 1,
        *,
        is_told: bool = True,
    ) -> bool:
        """Whether the peer of a call may do it; as Authorizer.allows."""
        # As Authorizer.remembers, a call less for each request.
        known = call.peer.decisions
        if (
            known is not None
            and known.snapshot is self.authorizer.cache.snapshot
            and (right[0], right[1], name) in known.allowed
        ):
            return True
        return self.authorizer.allows(
            *(call.peer, right[0], right[1], name),
            request=API_NAMES[call.key],
            count=count,
            is_told=is_told,
        )


API_NAMES: Final = {
    int(key): "".join(word.capitalize() for word in key.name.split("_")) for key in ApiKey
}
"""As the audit log names them."""

Guard = Callable[[Handler, GuardContext], Handler]
"""From a handler to one that serves only what is allowed."""


def open_to_all(serve: Handler, _: GuardContext) -> Handler:
    """Nothing is asked, or the handler asks by itself."""
    return serve


def whole(
    right: Right, refused: Callable[[Call], Answer], name_of: Callable[[Any], str] | None = None
) -> Guard:
    """All of a request or nothing; the resource is the cluster, or what ``name_of`` finds."""
    operation, resource_type = right

    def guard(serve: Handler, context: GuardContext) -> Handler:
        allows = context.authorizer.allows

        def handle(call: Call) -> Answer:
            name = CLUSTER_NAME if name_of is None else name_of(call.request)
            if allows(call.peer, operation, resource_type, name, request=API_NAMES[call.key]):
                return serve(call)
            return refused(call)

        return handle

    return guard


def served(steps: Steps) -> Answer:
    """What the steps of a guard come to: now where they never yield, else in turns to come."""
    try:
        next(steps)
    except StopIteration as stop:
        return stop.value
    return _finish(steps)


async def _finish(steps: Steps) -> Any:
    await asyncio.sleep(0)
    return await settled(await run_to_end(steps))


async def settled(answer: Answer) -> Any:
    """The response itself, whatever way a handler gives it."""
    if is_coroutine(answer):
        answer = await answer
    return await response_of(answer) if type(answer) is PendingResponse else answer


def merged(answer: Answer, merge: Callable[[Any], Any]) -> Answer:
    """The answer of a handler with something put in; ``merge`` gives the response again."""
    if is_coroutine(answer):
        return _merged_later(answer, merge)
    if type(answer) is not PendingResponse:
        return merge(answer)
    outer = PendingResponse(answer.on_drop)
    answer.add_done_callback(lambda inner: outer.respond(merge(inner.answer)))
    if answer.is_resolved:
        outer.respond(merge(answer.answer))
    return outer


async def _merged_later(answer: Coroutine[Any, Any, Any], merge: Callable[[Any], Any]) -> Any:
    return merge(await settled(answer))


def changed(answer: Any, **fields: Any) -> Any:
    """The answer with other fields; the handler's own stays as it is.

    Handlers may give the same answer to many: what one peer is denied must not be told to another.
    """
    made = copy(answer)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def afterwards(answer: Answer, steps_of: Callable[[Any], Steps]) -> Answer:
    """The answer of a handler, which takes further steps, perhaps many, before it goes out."""
    if type(answer) is PendingResponse or is_coroutine(answer):
        return _afterwards(answer, steps_of)
    return served(steps_of(answer))


async def _afterwards(answer: Answer, steps_of: Callable[[Any], Steps]) -> Any:
    return await run_to_end(steps_of(await settled(answer)))


class Split(NamedTuple):
    """The entries of a request."""

    permitted: list[Any]
    denied: list[Any]


def split(
    call: Call,
    context: GuardContext,
    right: Right,
    entries: Iterable[Any],
    name_of: Callable[[Any], str],
    *,
    size_of: Callable[[Any], int] = lambda _: 1,
    is_told: bool = True,
) -> Generator[None, None, Split]:
    """Which entries may be served, in turns; each name is decided once, for the audit log."""
    turn = Turn()
    counts: Counter[str] = Counter()
    for entry in entries:
        counts[name_of(entry)] += size_of(entry)
        if turn.is_over():
            yield
    verdicts: dict[str, bool] = {}
    for name, count in counts.items():
        verdicts[name] = context.may(call, right, name, count, is_told=is_told)
        if turn.is_over(DECISION_STEPS):
            yield
    found = Split([], [])
    for entry in entries:
        found[not verdicts[name_of(entry)]].append(entry)
        if turn.is_over():
            yield
    return found


DECISION_STEPS: Final = 3
"""A decision that is not remembered takes as long as so many looks at a partition."""


class EntriesGuard:
    """A request of a list, each of whose entries is answered by itself.

    ``entries`` and ``results`` name the lists in request and response, ``denied`` makes the result
    of an entry that may not be served.
    """

    def __init__(
        self,
        right: Right,
        *,
        entries: str,
        results: str,
        name: str | Callable[[Any], str],
        denied: Callable[[Any], Any],
        response: Callable[..., Any],
        size_of: Callable[[Any], int] = lambda _: 1,
    ) -> None:
        self.right = right
        self._entries = entries
        self._results = results
        self._name_of = name if callable(name) else _attribute(name)
        self._denied = denied
        self._response = response
        self._size_of = size_of

    def __call__(self, serve: Handler, context: GuardContext) -> Handler:
        """Stand before ``serve``."""
        remembers, name_of, field = context.authorizer.remembers, self._name_of, self._entries
        operation, resource_type = self.right

        def handle(call: Call) -> Answer:
            entries = getattr(call.request, field)
            if entries is None:
                return serve(call)
            if len(entries) <= TURN_STEPS:
                for entry in entries:
                    if not remembers(call.peer, operation, resource_type, name_of(entry)):
                        break
                else:
                    return serve(call)
            return served(self.steps(call, serve, context))

        return handle

    def steps(self, call: Call, serve: Handler, context: GuardContext) -> Steps:
        """Serve what is allowed of the list, and answer the rest."""
        found = yield from split(
            *(call, context, self.right, getattr(call.request, self._entries), self._name_of),
            size_of=self._size_of,
        )
        if not found.denied:
            return serve(call)
        refused = yield from _mapped(self._denied, found.denied)
        # Not even an empty list: a member's session must not be renewed by what is denied.
        if not found.permitted:
            return self._response(**{self._results: refused})
        setattr(call.request, self._entries, found.permitted)

        def merge(answer: Any) -> Any:
            return changed(answer, **{self._results: [*refused, *getattr(answer, self._results)]})

        return merged(serve(call), merge)


def _attribute(name: str) -> Callable[[Any], str]:
    def read(entry: Any) -> str:
        value: str = getattr(entry, name)
        return value

    return read


def _mapped(make: Callable[[Any], Any], entries: Sequence[Any]) -> Generator[None, None, list[Any]]:
    turn, made = Turn(), []
    for entry in entries:
        made.append(make(entry))
        if turn.is_over():
            yield
    return made


def visible(
    call: Call,
    context: GuardContext,
    right: Right,
    entries: Sequence[Any],
    name_of: Callable[[Any], str],
) -> Generator[None, None, list[Any]]:
    """The entries of an answer that may be shown; the others are left out without a word."""
    found = yield from split(call, context, right, entries, name_of, is_told=False)
    return found.permitted

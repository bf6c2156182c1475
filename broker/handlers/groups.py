"""The APIs of groups and their offsets: handed to the coordinator, answered when it says so.

Source: docs/spec/coordinator.md §1. A commit is answered at the end of the turn that appended it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.ports import Caller
from barnabas.protocol.api import ApiKey

from .call import Answer, Call, Handler, Peer, PendingResponse, response_of
from .cooperative import in_turns, run_to_end
from .guards import DESCRIBE_TOPIC, GuardContext

Method = Callable[[Any, int, Caller, Callable[[Any], None]], None]
"""Request, version, caller, and where the answer goes: exactly once, perhaps at once."""


LONG_ANSWERS: Final = (
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
)
"""A short request may have an answer of 100,000 members or groups."""


class GroupsHandler:
    """Adapts the coordinator's methods to calls that may be answered later."""

    def __init__(self, coordinator: GroupCoordinator, rights: GuardContext | None = None) -> None:
        """``rights`` says which topics a member's expression may stand for; None: all."""
        self._coordinator = coordinator
        self._rights = rights

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        serve = self._coordinator
        methods: Mapping[int, Method] = {
            ApiKey.JOIN_GROUP: serve.join_group,
            ApiKey.SYNC_GROUP: serve.sync_group,
            ApiKey.HEARTBEAT: serve.heartbeat,
            ApiKey.LEAVE_GROUP: serve.leave_group,
            ApiKey.DESCRIBE_GROUPS: serve.describe_groups,
            ApiKey.LIST_GROUPS: serve.list_groups,
            ApiKey.DELETE_GROUPS: serve.delete_groups,
            ApiKey.OFFSET_DELETE: serve.offset_delete,
            ApiKey.CONSUMER_GROUP_DESCRIBE: serve.consumer_group_describe,
        }
        others: dict[int, Handler] = {
            key: waiting(adapted(method)) if key in LONG_ANSWERS else adapted(method)
            for key, method in methods.items()
        }
        return {
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.OFFSET_COMMIT: self._offset_commit(),
            ApiKey.OFFSET_FETCH: self._offset_fetch(),
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self.consumer_group_heartbeat,
            **others,
        }

    def consumer_group_heartbeat(self, call: Call) -> Answer:
        """A member of a group of KIP-848; what it may see is asked again for its expressions."""
        pending, rights = PendingResponse(), self._rights

        def may_describe(topic: str) -> bool:
            return rights is None or rights.may(call, DESCRIBE_TOPIC, topic, is_told=False)

        self._coordinator.consumer_group_heartbeat(
            call.request,
            call.version,
            caller_of(call.peer, call.client_id),
            pending.respond,
            may_describe,
        )
        return pending

    def _offset_fetch(self) -> Handler:
        """Only version 0 has anything to wait for."""
        serve = self._coordinator
        wait, answer = adapted(serve.offset_fetch), serve.offset_fetch_now

        def handle(call: Call) -> Answer:
            version = call.version
            if call.is_long and version:
                return in_turns(serve.offset_fetch_in_turns(call.request, version))
            return answer(call.request, version) if version else wait(call)

        return handle

    def _offset_commit(self) -> Handler:
        commit, committing = (
            self._coordinator.offset_commit,
            self._coordinator.offset_commit_in_turns,
        )

        async def commit_in_turns(call: Call) -> Answer:
            pending, caller = PendingResponse(), caller_of(call.peer, call.client_id)
            await run_to_end(committing(call.request, call.version, caller, pending.respond))
            return await response_of(pending)

        def handle(call: Call) -> Answer:
            if call.is_long:
                return commit_in_turns(call)
            pending = PendingResponse()
            commit(
                call.request, call.version, caller_of(call.peer, call.client_id), pending.respond
            )
            return pending

        return handle

    def find_coordinator(self, call: Call) -> Answer:
        """Where a group is coordinated, as seen from the peer's listener."""
        pending = PendingResponse()
        self._coordinator.find_coordinator(
            call.request, call.version, call.peer.listener, pending.respond
        )
        return pending


def waiting(
    handler: Callable[[Call], PendingResponse],
) -> Callable[[Call], Coroutine[Any, Any, Any]]:
    """The same as a coroutine, whose answer is written over several turns where it is long."""

    def handle(call: Call) -> Coroutine[Any, Any, Any]:
        return response_of(handler(call))

    return handle


def adapted(method: Method) -> Callable[[Call], PendingResponse]:
    """A coordinator's method as a handler."""

    def handle(call: Call) -> PendingResponse:
        pending = PendingResponse()
        method(call.request, call.version, caller_of(call.peer, call.client_id), pending.respond)
        return pending

    return handle


def caller_of(peer: Peer, client_id: str | None) -> Caller:
    """Who asks, made once for a connection whose client id stays the same."""
    name = client_id or ""
    known = peer.remembered
    if known is None or known.client_id != name:
        known = peer.remembered = Caller(name, peer.host, peer.principal)
    caller: Caller = known
    return caller

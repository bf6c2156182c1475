"""All groups as their coordinators list them; what has not changed is not read again.

Source: docs/spec/console.md §5 (budgets); KIP-518 (states in ListGroups).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import GroupListing
from barnabas.client.admin.group_admin import listing_of
from barnabas.client.cluster import AnswerMemory
from barnabas.client.errors import raise_for
from barnabas.client.turns import Turns
from barnabas.protocol.messages import list_groups

_serials = itertools.count()


class KnownGroups(dict[str, GroupListing]):
    """Groups by name, in order; nobody changes it."""

    names: Sequence[str] = ()

    def __init__(self, listings: Iterable[GroupListing] = ()) -> None:
        super().__init__(sorted((listing.group, listing) for listing in listings))
        self.names = list(self)
        self.serial = next(_serials)
        """Another one for other groups, or other states of them."""


class GroupLister:
    """Asks every node for its groups, and keeps what they said."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._memories: dict[int, AnswerMemory] = {}
        self._told: dict[int, tuple[list_groups.ListGroupsResponse, list[GroupListing]]] = {}
        self._known = KnownGroups()

    async def all_groups(self) -> KnownGroups:
        """The same object as the last time where no node told anything new. Raises KafkaError."""
        nodes = [node.id for node in await self._admin.cluster.nodes()]
        answers = await asyncio.gather(*map(self._asked, nodes))
        is_new = self._told.keys() != set(nodes)
        told = {}
        for node, answer in zip(nodes, answers, strict=True):
            before = self._told.get(node)
            if before is None or before[0] is not answer:
                before, is_new = (answer, await _listings(answer, node)), True
            told[node] = before
        if is_new:
            self._known = KnownGroups(one for _, listings in told.values() for one in listings)
        self._told = told
        self._memories = {node: self._memories[node] for node in nodes}
        return self._known

    async def _asked(self, node: int) -> list_groups.ListGroupsResponse:
        memory = self._memories.setdefault(node, AnswerMemory())
        request = list_groups.ListGroupsRequest()
        answer: list_groups.ListGroupsResponse = await self._admin.cluster.to_node(
            node, request, lambda answer: [answer.error_code], memory=memory
        )
        raise_for(answer.error_code)
        return answer


async def _listings(answer: list_groups.ListGroupsResponse, node: int) -> list[GroupListing]:
    turns = Turns()
    found = []
    for group in answer.groups:
        found.append(listing_of(group, node))
        await turns.pause()
    return found

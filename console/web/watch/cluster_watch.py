"""All that one principal knows of a cluster: its administrator, the catalogue, the groups.

Source: docs/spec/console.md §2.1 (hot and sweep).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.audit_history import read_audit
from barnabas.client.admin.event_history import read_events
from barnabas.client.admin.quotas import QuotaDescription, describe_quotas
from barnabas.client.admin.transaction_descriptions import TransactionListing
from barnabas.client.client_config import ClientConfig
from barnabas.protocol.audit_topic import AuditRecord
from barnabas.protocol.events_topic import ClusterEvent

from .access import AclRow, UserRow, acl_rows, user_rows
from .catalogue import Catalogue
from .group_table import GroupTable
from .hot_rows import HotRows
from .node_status import Status, StatusReader
from .orderings import Orderings, PreparedOrders
from .rates import Rates
from .reading import Source, Sources, now_ms
from .standings import GroupRow, Standing, rows_of_groups, standing_of
from .survey import Survey, readable_histories
from .timeline import Timeline, timeline_of
from .topic_rows import TopicMeter, TopicRow

HOT_S: Final = 2.0
HISTORY_RECORDS_MAX: Final = 100_000
AUDIT_S: Final = 5.0
LISTS_S: Final = 5.0
STATUS_S: Final = 2.0
TIMELINE_S: Final = 20.0
"""It asks each leader some two dozen times."""
CHANGES_MOST: Final = 200
EVENTS_MS: Final = 7 * 24 * 3_600_000
EVENTS_MOST: Final = 5_000
AUDIT_MOST: Final = 5_000
"""The latest changes that are kept in memory."""


class ClusterWatch:
    """What is known of the cluster at ``bootstrap``, asked over connections of its own."""

    def __init__(
        self, bootstrap: str, config: ClientConfig, status_token: str | None = None
    ) -> None:
        self.bootstrap = bootstrap
        self.config = config
        self.admin = Admin.of(bootstrap, config)
        self.catalogue = Catalogue(self.admin)
        self.survey = Survey(self.admin, self.catalogue)
        self.groups: Sources[str, Standing] = Sources(self._standing, HOT_S)
        """Those on somebody's screen."""
        self.group_rows: HotRows[str, GroupRow | None] = HotRows(self._group_rows, HOT_S)
        """Of lists: without the look at commits, which a list cannot pay for each row."""
        self.group_table = GroupTable(self.survey)
        self.timelines: Sources[str, Timeline] = Sources(
            lambda name: timeline_of(self.admin, name), TIMELINE_S, most=50
        )
        self.statuses: Sources[int, Status | None] = Sources(
            StatusReader(self.admin.cluster, status_token).status_of, STATUS_S
        )
        """What each node says of itself; None for one that says nothing."""
        self.audit: Source[list[AuditRecord]] = Source(self._audit, AUDIT_S)
        self.events: Source[list[ClusterEvent]] = Source(self._events, AUDIT_S)
        """The latest ones, the newest first; none where the cluster keeps none."""
        self.transactions: Source[list[TransactionListing]] = Source(
            self.admin.list_transactions, LISTS_S
        )
        self.acls: Source[list[AclRow]] = Source(lambda: acl_rows(self.admin), LISTS_S)
        self.users: Source[list[UserRow]] = Source(lambda: user_rows(self.admin), LISTS_S)
        self.quotas: Source[list[QuotaDescription]] = Source(
            lambda: describe_quotas(self.admin.cluster, {}), LISTS_S
        )
        self.changes: deque[dict[str, Any]] = deque(maxlen=CHANGES_MOST)
        """What was changed through this console, the latest last: kept while it runs."""
        self.orderings = Orderings()
        self.topic_orders = {True: PreparedOrders(), False: PreparedOrders()}
        """With internal topics and without them."""
        self.rates = Rates()
        meter = TopicMeter(self.admin.cluster, self.catalogue, self.rates)
        self.topic_rows: HotRows[str, TopicRow] = HotRows(meter.rows, HOT_S)
        self.changed_ms = 0
        """When something was changed last: what was known before counts no more."""

    async def close(self) -> None:
        """End everything, close the connections."""
        await self.survey.close()
        for source in (self.catalogue, *self._sources):
            source.close()
        await self.admin.close()

    def expire(self) -> None:
        """Something was changed: show what is there now."""
        self.changed_ms = now_ms()
        self.catalogue.expire()
        for source in self._sources:
            source.expire()

    @property
    def _sources(self) -> Sequence[Source[Any] | Sources[Any, Any] | HotRows[Any, Any]]:
        return (
            self.groups, self.group_rows, self.topic_rows, self.timelines, self.statuses,
            self.audit, self.events, self.transactions,
            self.acls, self.users, self.quotas,
        )  # fmt: skip

    async def _standing(self, name: str) -> Standing:
        group = await self.admin.describe_group(name)
        histories = {}
        if group.exists:
            histories = await readable_histories(self.admin, [name], HISTORY_RECORDS_MAX)
        return await standing_of(self.admin, group, histories.get(name))

    async def _group_rows(self, names: Sequence[str]) -> Mapping[str, GroupRow | Exception | None]:
        return await rows_of_groups(self.admin, names, {}, self.survey.unread)

    async def _events(self) -> list[ClusterEvent]:
        """The latest events, the newest first, each once."""
        since_ms = now_ms() - EVENTS_MS
        found = await read_events(self.admin, since_ms=since_ms)
        known = {(event.time_ms, event.node, event.event, str(event.fields)): event
                 for event in found}  # fmt: skip
        return list(known.values())[: -EVENTS_MOST - 1 : -1]

    async def _audit(self) -> list[AuditRecord]:
        """The latest changes, the newest first, each once."""
        found = list(dict.fromkeys(await read_audit(self.admin, lambda record: True)))
        return found[: -AUDIT_MOST - 1 : -1]

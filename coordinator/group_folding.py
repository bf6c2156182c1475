"""How a partition of ``__consumer_offsets`` is folded into groups: replay, snapshots, damage.

Source: docs/spec/coordinator.md §3.4 to §3.4.2; docs/decisions/0009 (damaged records).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator

from .consumer_groups.consumer_group import ConsumerGroup
from .damaged_records import DamagedRecords
from .fold import Folding
from .group import Group
from .group_registry import GroupTerm
from .ports import OFFSETS_TOPIC, Replica
from .replay import RECORDS_BETWEEN_LOOKS, Replay
from .snapshot_files import restored, saved

log = logging.getLogger(__name__)


class GroupFolding(Folding[GroupTerm, Replay, list[Group]]):
    """Groups with their offsets, and what snapshots keep of them."""

    topic = OFFSETS_TOPIC
    contents_name = "groups"
    skips_damage = True

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms

    def empty(self) -> Replay:
        """No group."""
        return Replay()

    def contents(self, fold: Replay, term: GroupTerm) -> Generator[None, None, list[Group]]:
        """The groups that ``fold`` amounts to."""
        groups = []
        for group in fold.groups(term, self._now_ms()):
            groups.append(group)
            if not len(groups) % RECORDS_BETWEEN_LOOKS:
                yield
        term.open_groups = fold.open_groups
        return groups

    def size(self, contents: list[Group]) -> int:
        """How many groups."""
        return len(contents)

    def saved_offset(self, replica: Replica) -> int:
        """Up to where the snapshots beside the log go."""
        return saved(replica).offset

    def restored(self, replica: Replica) -> Generator[None, None, tuple[Replay, int] | None]:
        """What the snapshots hold."""
        return restored(replica)

    def skip_damage(self, fold: Replay) -> None:
        """From here on it matters where the metadata of each group is."""
        fold.group_record_offsets = fold.group_record_offsets or {}

    def loaded_past_damage(
        self, term: GroupTerm, fold: Replay, damaged: DamagedRecords, contents: list[Group]
    ) -> list[Group]:
        """Groups that the damage may concern are told to come again, all others are served.

        Damage is not absence: "no offset" would send a group to the start or the end of its
        topics, an older offset back in time (docs/decisions/0009).
        """
        term.damaged = damaged
        described = (fold.group_record_offsets or {}).items()
        damaged.loaded(
            {group.group_id for group in contents},
            [group_id for group_id, at in described if at >= damaged.next_offset],
        )
        log.error(
            "serves an offsets partition without its damaged records partition=%d: answers "
            "COORDINATOR_LOAD_IN_PROGRESS of groups=%s, to fetches of what they have not "
            "committed since, and to whoever describes or deletes one before it is joined "
            "again, until `barnabas log repair` says that the records are lost",
            *(term.partition, damaged),
        )
        return [
            _without_metadata(group, self._now_ms())
            if damaged.lacks_metadata(group.group_id)
            else group
            for group in contents
        ]


def _without_metadata(group: Group, now_ms: int) -> Group:
    """The group as if nobody had joined yet: its members, who are told so, join again.

    Its last metadata may be among the damaged records. The members of an older record may have been
    replaced since: were they believed, a member of a former generation could commit over the
    offsets of the one that owns its partitions now.
    """
    bare = Group(group.group_id, group.term, since_ms=now_ms)
    if isinstance(group, ConsumerGroup):
        # which of its records are lost is not known: none counts, and all are deleted
        bare = ConsumerGroup(group.group_id, group.term, since_ms=now_ms, epoch=group.epoch)
        bare.assignment_epoch = group.epoch
        bare.dirty = dict.fromkeys(group.keys())
        bare.foreign_keys = group.foreign_keys
    bare.offsets = group.offsets
    bare.lacks_metadata = True
    return bare

"""The consumer: subscribe or assign, poll records or batches, seek, pause, commit.

Source: docs/spec/coordinator.md §1.9 and §5; docs/spec/users.md §6.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from barnabas.client.background import BackgroundTasks
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import Cluster
from barnabas.client.errors import KafkaError
from barnabas.client.group_metadata import CommittedOffset, GroupMetadata
from barnabas.client.topology import TopicPartition

from .consumed_records import Chunk, ConsumedRecord
from .consumer_batch import Batch
from .consumer_config import CLASSIC, CONSUMER, GROUP_PROTOCOL, ConsumerConfig, parse_consumer
from .consumer_rebalance import GroupConsumer
from .dataframes import arrow_table, pandas_frame
from .epoch_consumer import EpochConsumer
from .fetch_config import FetchConfig
from .fetcher import Fetcher
from .group_membership import GroupMembership
from .list_offsets import EARLIEST, LATEST, offsets_for
from .offset_commits import OffsetCommitter, Offsets
from .rebalance_listener import PartitionSet, RebalanceListener
from .subscription_state import SubscriptionState

if TYPE_CHECKING:
    import pandas
    import pyarrow

_MEMBERSHIPS: Final[Mapping[str, type[GroupConsumer | EpochConsumer]]] = {
    CLASSIC: GroupConsumer,
    CONSUMER: EpochConsumer,
}
RECORDS_MAX = 10_000
TIMEOUT_S = 0.5


class Consumer:
    """Reads topics; use it in ``async with``, or start and close it.

    With ``group`` the partitions are shared with its other members and offsets are committed;
    without, all partitions of the topics are read. ``group_protocol`` stands for the setting
    ``group.protocol``: with ``consumer`` the coordinator assigns the partitions (KIP-848).
    Iterate over it for records, over :meth:`batches` for many at once. One task may ask at a time.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *topics: str,
        pattern: str | None = None,
        group: str | None = None,
        group_protocol: str | None = None,
        config: ConsumerConfig | Mapping[str, Any] | None = None,
        fetch: FetchConfig | None = None,
        client: ClientConfig | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        if isinstance(config, Mapping):
            if group_protocol is not None:
                config = {**config, GROUP_PROTOCOL: group_protocol}
            config, parsed_fetch, parsed_client = parse_consumer(config)
            fetch, client = fetch or parsed_fetch, client or parsed_client
        elif group_protocol is not None:
            config = replace(config or ConsumerConfig(), group_protocol=group_protocol)
        self.config = config or ConsumerConfig()
        self.group = group
        self.cluster = Cluster(bootstrap, client)
        reset = self.config.auto_offset_reset
        self._fetcher = Fetcher(self.cluster, replace(fetch or FetchConfig(), reset=reset))
        self._listener = listener or RebalanceListener()
        self._topics = frozenset(topics)
        self._pattern = pattern
        self._subscription = SubscriptionState(self._fetcher.past_markers)
        self._topic_partitions: set[TopicPartition] = set()
        self._tasks = BackgroundTasks(lambda error: None)
        self._member: GroupMembership | None = None
        self._committer: OffsetCommitter | None = None
        self._is_started = self._is_closed = False

    async def start(self) -> None:
        """Connect, and join the group or find the partitions to read.

        Returns without waiting for the group. Raises KafkaError, for a wrong address at once.
        """
        assert not self._is_started, "started twice"
        self._is_started = True
        self._fetcher.start()
        await self.cluster.nodes()
        if self.group is not None:
            membership = _MEMBERSHIPS[self.config.group_protocol]
            self._member = membership(
                self.cluster,
                self.group,
                self.config,
                self._fetcher,
                listener=self._listener,
                before_revoke=self._before_revoke,
                forget=self._subscription.revoke,
            )
            self._committer = OffsetCommitter(self.config, self._member, self._subscription)
            if self.config.auto_commit:
                self._tasks.spawn(self._committer.auto_commit(), "auto commit")
        if self._topics or self._pattern is not None:
            await self.subscribe(*self._topics, pattern=self._pattern)

    async def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        """Read these topics, or all whose whole name matches ``pattern``, in place of others.

        In a classic group it is an expression of Python's, matched here; with
        ``group.protocol=consumer`` one of RE2's, matched by the coordinator.
        """
        if self._member is not None:
            self._member.subscribe(topics, pattern)
            return
        assert pattern is None, "a pattern needs a group"
        await self.cluster.metadata(topics)
        counts = self.cluster.topology.counts
        for topic in topics:
            if topic not in counts:
                raise KafkaError(self.cluster.topology.topic_errors[topic], topic)
        topic_partitions = [
            TopicPartition(topic, i) for topic in topics for i in range(counts[topic])
        ]
        await self.assign(topic_partitions)

    async def assign(
        self, topic_partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]
    ) -> None:
        """Read exactly these, from the given offsets, or from the committed ones if there are any.

        No member of the group then, if there is one: its offsets may be committed only while it
        has no members.
        """
        positions = (
            dict(topic_partitions)
            if isinstance(topic_partitions, Mapping)
            else dict.fromkeys(topic_partitions)
        )
        unknown = [
            topic_partition for topic_partition, offset in positions.items() if offset is None
        ]
        if self._member is not None and unknown:
            # Stable ones, as a member of the group asks for them: see GroupConsumer.
            committed = await self._member.fetch_offsets(unknown, require_stable=True)
            positions |= {
                topic_partition: offset.offset for topic_partition, offset in committed.items()
            }
        # Those that were read before, too: what is in hand of them is from before the new position.
        self._subscription.forget(self._topic_partitions | positions.keys())
        self._fetcher.remove(self._topic_partitions - positions.keys())
        self._fetcher.add(positions)
        self._topic_partitions = set(positions)

    @property
    def assignment(self) -> PartitionSet:
        """The partitions that are read now."""
        return frozenset(self._open)

    @property
    def paused(self) -> PartitionSet:
        """Those that wait for :meth:`resume`."""
        return self._fetcher.paused

    def pause(self, *topic_partitions: TopicPartition) -> None:
        """Hand out nothing of these until :meth:`resume`."""
        self._fetcher.pause(topic_partitions)

    def resume(self, *topic_partitions: TopicPartition) -> None:
        """Undo :meth:`pause`."""
        self._fetcher.resume(topic_partitions)

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The offset of the next record that will be handed out; None while nobody knows it."""
        waiting = self._subscription.position(topic_partition)
        return self._fetcher.position(topic_partition) if waiting is None else waiting

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Read on at ``offset``; raises KeyError for a partition that is not read."""
        self._fetcher.seek(topic_partition, offset)
        self._subscription.forget([topic_partition])

    async def seek_to_beginning(self, *topic_partitions: TopicPartition) -> None:
        """Read these, or everything, from the first record that is still kept."""
        await self._seek_to(EARLIEST, topic_partitions)

    async def seek_to_end(self, *topic_partitions: TopicPartition) -> None:
        """Read only what is written from now on."""
        await self._seek_to(LATEST, topic_partitions)

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The first offset at or after each time in ms, -1 where nothing is so late."""
        return await offsets_for(
            self.cluster, times, read_committed=self._fetcher.config.read_committed
        )

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit ``offsets``, or where everything handed out so far ends.

        Raises CommitFailed when the group went on without us: nothing was stored then.
        """
        assert self._committer is not None, "only a consumer with a group commits"
        await self._committer.commit(
            self._subscription.handed_out() if offsets is None else offsets
        )

    async def committed(
        self, topic_partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed, in ``topic_partitions`` or everywhere.

        With ``isolation.level=read_committed`` it waits for transactions that are about to commit
        other offsets.
        """
        assert self._member is not None, "only a consumer with a group has committed"
        return await self._member.fetch_offsets(
            topic_partitions, require_stable=self._fetcher.config.read_committed
        )

    async def seek_to_committed(self) -> None:
        """Read everything again from where the group has committed.

        For after an aborted transaction: what it had copied is handed out once more. Waits for
        transactions that are about to commit other offsets.
        """
        assert self._member is not None, "only a consumer with a group has committed"
        chosen = list(self._open)
        committed = await self._member.fetch_offsets(chosen, require_stable=True)
        for topic_partition in chosen:
            if topic_partition in self._open:  # or it went to another member meanwhile
                offset = committed.get(topic_partition)
                self._fetcher.seek(topic_partition, None if offset is None else offset.offset)
                self._subscription.forget([topic_partition])
        self._subscription.revoked_unstored.clear()

    async def offsets_for_transaction(
        self,
    ) -> tuple[GroupMetadata, dict[TopicPartition, CommittedOffset]]:
        """Who we are in the group, and where everything handed out ends: for ``send_offsets``.

        Raises CommitFailed when part of that is another member's by now, ConfigError with
        automatic commits, which would store the offsets of what is aborted.
        """
        assert self._committer is not None, "only a consumer with a group commits"
        return await self._committer.for_transaction()

    def offsets_sent(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """A transaction has these: what was handed out before them is taken care of."""
        self._subscription.committed.update(offsets)

    async def batches(
        self, max_records: int = RECORDS_MAX, timeout_s: float = TIMEOUT_S
    ) -> AsyncIterator[Batch]:
        """Batches of at most ``max_records``, for ever.

        A batch is handed out when it is full, or ``timeout_s`` after its first record came;
        nothing is handed out while there is nothing.
        """
        while True:
            batch = await self.next_batch(max_records, timeout_s=None, gather_s=timeout_s)
            assert batch is not None, "no limit, but nothing came"
            yield batch

    async def next_batch(
        self,
        max_records: int = RECORDS_MAX,
        *,
        timeout_s: float | None = TIMEOUT_S,
        gather_s: float = 0.0,
    ) -> Batch | None:
        """What there is, up to ``max_records``; None when nothing came within ``timeout_s``.

        After the first records came it waits up to ``gather_s`` for the batch to be full. Asking
        tells that the last batch is done with.
        """
        return await self._hand_out(max_records, timeout_s, gather_s)

    async def to_arrow(self, max_records: int, *, timeout_s: float = TIMEOUT_S) -> pyarrow.Table:
        """The next records as a pyarrow table, fewer when none comes for ``timeout_s``."""
        return arrow_table(await self._records(max_records, timeout_s))

    async def to_pandas(
        self, max_records: int, *, timeout_s: float = TIMEOUT_S
    ) -> pandas.DataFrame:
        """The next records as a pandas frame, fewer when none comes for ``timeout_s``."""
        return pandas_frame(await self._records(max_records, timeout_s))

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Records, one by one, for ever; a loop that is begun anew goes on with the next one."""
        while True:
            chunk = await self.next_chunk()
            for index, record in enumerate(chunk.records()):
                self._subscription.mark_delivered(chunk, index)
                yield record
                if not await self.may_continue(chunk):
                    break

    async def next_chunk(self) -> Chunk:
        """Records of one partition, the first in hand: for who gives them out one by one."""
        await self._ask()
        chunk = await self._take(None)
        assert chunk is not None, "no limit, but nothing came"
        self._subscription.begin_chunk(chunk)
        self._fill()
        return chunk

    def mark_delivered(self, chunk: Chunk, index: int) -> None:
        """The application has the record ``index`` of ``chunk`` in hand now."""
        self._subscription.mark_delivered(chunk, index)

    async def may_continue(self, chunk: Chunk) -> bool:
        """Let a rebalance that waits go on; whether the rest of ``chunk`` is still ours to read."""
        if self._subscription.has_left(chunk):
            return False
        if self._member is not None and self._member.is_waiting:
            self._subscription.finish_record()
            await self._let_rebalance_run()
            if chunk.topic_partition not in self._member.open:
                return False
            self._member.note_handed_out()
        return True

    async def close(self) -> None:
        """Commit what was handed out, if that is automatic, and leave the group."""
        await self._close(is_clean=True)

    async def __aenter__(self) -> Self:
        """Start."""
        try:
            await self.start()
        except BaseException:
            await self._close(is_clean=False)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; after an exception what is in hand is not committed by itself."""
        await self._close(is_clean=error is None)

    async def _close(self, *, is_clean: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await self._tasks.close()
        try:
            if self._member is not None and self._committer is not None:
                if self.config.auto_commit and self._is_started:
                    done = (
                        self._subscription.handed_out()
                        if is_clean
                        else self._subscription.finished()
                    )
                    await self._committer.try_commit(done)
                await self._member.close()
        finally:
            await self._fetcher.close()
            await self.cluster.close()

    @property
    def _open(self) -> Collection[TopicPartition]:
        if self._member is not None and not self._topic_partitions:
            return self._member.open
        return self._topic_partitions

    async def _ask(self) -> None:
        """The application wants more: it is done with what it had."""
        assert self._is_started, "use the consumer in `async with`, or start it"
        self._subscription.finish_all()
        await self._let_rebalance_run()

    async def _let_rebalance_run(self) -> None:
        """The application holds nothing now: a rebalance that waits for that runs first."""
        if self._member is not None:
            self._member.holds_nothing.set()
            if self._member.is_waiting:
                await asyncio.sleep(0)

    def _fill(self) -> None:
        if self._member is not None:
            self._member.note_handed_out()

    async def _take(self, timeout_s: float | None) -> Chunk | None:
        """The next chunk that may be handed out, one that was split first."""
        if self._subscription.pending:
            left = self._subscription.next_pending(self._may_give)
            if left is not None:
                return left
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while True:
            if self._member is not None:
                self._member.raise_failure()
            chunk = self._fetcher.take_ready(self._open)
            left_s = None if deadline is None else deadline - loop.time()
            if chunk is not None or not await self._fetcher.wait_for_chunk(left_s):
                return chunk

    def _may_give(self, chunk: Chunk) -> bool:
        """Whether nobody took the chunk's partition, moved in it or paused it meanwhile."""
        topic_partition = chunk.topic_partition
        is_ours = topic_partition in self._open and self._fetcher.is_current(chunk)
        return is_ours and topic_partition not in self._fetcher.paused

    def _still_ours(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Those that may be given still; those that were paused meanwhile are kept for later."""
        for chunk in reversed(chunks):
            if chunk.topic_partition in self._fetcher.paused and self._fetcher.is_current(chunk):
                self._subscription.pending.appendleft(chunk)
        return [chunk for chunk in chunks if self._may_give(chunk)]

    async def _before_revoke(self, topic_partitions: PartitionSet) -> None:
        if self.config.auto_commit and self._committer is not None:
            finished = self._subscription.finished()
            due = {
                topic_partition: finished[topic_partition]
                for topic_partition in topic_partitions
                if topic_partition in finished
            }
            await self._committer.try_commit(due)
        self._subscription.revoke(topic_partitions)

    async def _commit_batch(self, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        assert self._committer is not None, "only a consumer with a group commits"
        await self._committer.commit_handed_out(offsets)

    async def _seek_to(self, time: int, topic_partitions: Collection[TopicPartition]) -> None:
        chosen = list(topic_partitions or self._open)
        for topic_partition, offset in (
            await self.offsets_for_times(dict.fromkeys(chosen, time))
        ).items():
            self.seek(topic_partition, offset)

    async def _records(self, max_records: int, timeout_s: float) -> list[ConsumedRecord]:
        if max_records < 1:
            return []
        batch = await self._hand_out(max_records, timeout_s, timeout_s, for_frame=True)
        return [] if batch is None else batch.records()

    async def _hand_out(
        self,
        max_records: int,
        timeout_s: float | None,
        gather_s: float,
        *,
        for_frame: bool = False,
    ) -> Batch | None:
        """Up to ``max_records``, None without any; see :meth:`_gather`."""
        while True:
            await self._ask()
            gathered = await self._gather(max_records, timeout_s, gather_s, for_frame=for_frame)
            if not gathered:
                return None
            if chunks := self._still_ours(gathered):
                self._subscription.hand_out(chunks)
                self._fill()
                return Batch(chunks, self._commit_batch)

    async def _gather(
        self,
        max_records: int,
        timeout_s: float | None,
        gather_s: float,
        *,
        for_frame: bool,
    ) -> list[Chunk]:
        """Take chunks, which the application does not have yet, until ``gather_s`` after the first.

        For a frame they are decoded, and more is waited for until none came for ``gather_s``.
        They are kept for the next call when something is raised: a partition that failed, or a
        caller that gave up, would take the records of others along otherwise.
        """
        clock = asyncio.get_running_loop().time
        chunks: list[Chunk] = []
        count = 0
        try:
            chunk = await self._take(timeout_s)
            deadline = clock() + gather_s
            while chunk is not None:
                chunks.append(chunk)
                chunks[-1], rest = chunk.split(max_records - count)
                if rest is not None:
                    self._subscription.pending.appendleft(rest)
                if for_frame:
                    chunks[-1].records()
                    deadline = clock() + gather_s
                count += len(chunks[-1])
                if count >= max_records:
                    break
                chunk = await self._take(max(0.0, deadline - clock()))
        except BaseException:
            self._subscription.put_back(filter(self._fetcher.is_current, chunks))
            raise
        return chunks

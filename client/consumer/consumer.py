"""The consumer: records of topics, alone or as a member of a group, one by one or in batches.

Source: docs/spec/coordinator.md §1.9 and §5; docs/spec/users.md §6.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from barnabas.client.background import Tasks
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import Cluster
from barnabas.client.errors import KafkaError
from barnabas.client.topology import TopicPartition

from .consumed_records import Chunk, ConsumedRecord
from .consumer_batch import Batch
from .consumer_config import ConsumerConfig, parse_consumer
from .consumer_rebalance import GroupConsumer, Places, RebalanceListener
from .dataframes import arrow_table, pandas_frame
from .fetch_config import FetchConfig
from .fetcher import Fetcher
from .group_offsets import CommittedOffset
from .list_offsets import EARLIEST, LATEST, offsets_for
from .offset_commits import Commits, Offsets
from .subscription_state import Hands

if TYPE_CHECKING:
    import pandas
    import pyarrow

RECORDS_MAX = 10_000
TIMEOUT_S = 0.5


class Consumer:
    """Reads topics; use it in ``async with``, or start and close it.

    With ``group`` the partitions are shared with its other members and offsets are committed;
    without, all partitions of the topics are read. Iterate over it for records, over
    :meth:`batches` for many at once. One task may ask at a time.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *topics: str,
        pattern: str | None = None,
        group: str | None = None,
        config: ConsumerConfig | Mapping[str, Any] | None = None,
        fetch: FetchConfig | None = None,
        client: ClientConfig | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        if isinstance(config, Mapping):
            config, parsed_fetch, parsed_client = parse_consumer(config)
            fetch, client = fetch or parsed_fetch, client or parsed_client
        self.config = config or ConsumerConfig()
        self.group = group
        self.cluster = Cluster(bootstrap, client)
        reset = self.config.auto_offset_reset
        self._fetcher = Fetcher(self.cluster, replace(fetch or FetchConfig(), reset=reset))
        self._listener = listener or RebalanceListener()
        self._topics = frozenset(topics)
        self._pattern = pattern
        self._hands = Hands()
        self._places: set[TopicPartition] = set()
        self._tasks = Tasks(lambda error: None)
        self._member: GroupConsumer | None = None
        self._commits: Commits | None = None
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
            self._member = GroupConsumer(
                self.cluster,
                self.group,
                self.config,
                self._fetcher,
                listener=self._listener,
                before_revoke=self._before_revoke,
                forget=self._hands.forget,
            )
            self._commits = Commits(self.config, self._member, self._hands)
            if self.config.auto_commit:
                self._tasks.spawn(self._commits.commit_now_and_then(), "auto commit")
        if self._topics or self._pattern is not None:
            await self.subscribe(*self._topics, pattern=self._pattern)

    async def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        """Read these topics, or all whose whole name matches ``pattern``, in place of others."""
        if self._member is not None:
            self._member.subscribe(topics, pattern)
            return
        assert pattern is None, "a pattern needs a group"
        await self.cluster.metadata(topics)
        counts = self.cluster.topology.counts
        for topic in topics:
            if topic not in counts:
                raise KafkaError(self.cluster.topology.refusals[topic], topic)
        places = [TopicPartition(topic, i) for topic in topics for i in range(counts[topic])]
        await self.assign(places)

    async def assign(
        self, places: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]
    ) -> None:
        """Read exactly these, from the given offsets, or from the committed ones if there are any.

        No member of the group then, if there is one: its offsets may be committed only while it
        has no members.
        """
        positions = dict(places) if isinstance(places, Mapping) else dict.fromkeys(places)
        unknown = [place for place, offset in positions.items() if offset is None]
        if self._member is not None and unknown:
            committed = await self._member.offsets.fetch(unknown)
            positions |= {place: each.offset for place, each in committed.items()}
        self._hands.forget(self._places - positions.keys())
        self._fetcher.remove(self._places - positions.keys())
        self._fetcher.add(positions)
        self._places = set(positions)

    @property
    def assignment(self) -> Places:
        """The partitions that are read now."""
        return frozenset(self._open)

    @property
    def paused(self) -> Places:
        """Those that wait for :meth:`resume`."""
        return self._fetcher.paused

    def pause(self, *places: TopicPartition) -> None:
        """Hand out nothing of these until :meth:`resume`."""
        self._fetcher.pause(places)

    def resume(self, *places: TopicPartition) -> None:
        """Undo :meth:`pause`."""
        self._fetcher.resume(places)

    def position(self, place: TopicPartition) -> int | None:
        """The offset of the next record that will be handed out; None while nobody knows it."""
        waiting = self._hands.position(place)
        return self._fetcher.position(place) if waiting is None else waiting

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Read on at ``offset``; raises KeyError for a partition that is not read."""
        self._fetcher.seek(place, offset)
        self._hands.forget([place])

    async def seek_to_beginning(self, *places: TopicPartition) -> None:
        """Read these, or everything, from the first record that is still kept."""
        await self._seek_to(EARLIEST, places)

    async def seek_to_end(self, *places: TopicPartition) -> None:
        """Read only what is written from now on."""
        await self._seek_to(LATEST, places)

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
        assert self._commits is not None, "only a consumer with a group commits"
        await self._commits.commit(self._hands.given() if offsets is None else offsets)

    async def committed(
        self, places: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed, in ``places`` or everywhere."""
        assert self._member is not None, "only a consumer with a group has committed"
        return await self._member.offsets.fetch(places)

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
        loop = asyncio.get_running_loop()
        await self._ask()
        chunk = await self._take(timeout_s)
        if chunk is None:
            return None
        chunks, count = [], 0
        deadline = loop.time() + gather_s
        while chunk is not None:
            part, rest = chunk.split(max_records - count)
            if rest is not None:
                self._hands.left.appendleft(rest)
            chunks.append(part)
            count += len(part)
            if count >= max_records:
                break
            chunk = await self._take(max(0.0, deadline - loop.time()))
        chunks = self._still_ours(chunks)
        if not chunks:
            return await self.next_batch(max_records, timeout_s=timeout_s, gather_s=gather_s)
        self._hands.give(chunks)
        self._fill()
        return Batch(chunks, self._commit_batch)

    async def to_arrow(self, max_records: int, *, timeout_s: float = TIMEOUT_S) -> pyarrow.Table:
        """The next records as a pyarrow table, fewer when none comes for ``timeout_s``."""
        return arrow_table(await self._gathered(max_records, timeout_s))

    async def to_pandas(
        self, max_records: int, *, timeout_s: float = TIMEOUT_S
    ) -> pandas.DataFrame:
        """The next records as a pandas frame, fewer when none comes for ``timeout_s``."""
        return pandas_frame(await self._gathered(max_records, timeout_s))

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Records, one by one, for ever; a loop that is begun anew goes on with the next one."""
        while True:
            chunk = await self.next_chunk()
            for index, record in enumerate(chunk.records()):
                self._hands.reach(chunk, index)
                yield record
                if not await self.goes_on(chunk):
                    break

    async def next_chunk(self) -> Chunk:
        """Records of one partition, the first in hand: for who gives them out one by one."""
        await self._ask()
        chunk = await self._take(None)
        assert chunk is not None, "no limit, but nothing came"
        self._hands.take(chunk)
        self._fill()
        return chunk

    def reach(self, chunk: Chunk, index: int) -> None:
        """The application has the record ``index`` of ``chunk`` in hand now."""
        self._hands.reach(chunk, index)

    async def goes_on(self, chunk: Chunk) -> bool:
        """Let a rebalance that waits go on; whether the rest of ``chunk`` is still ours to read."""
        if self._hands.is_elsewhere(chunk):
            return False
        if self._member is not None and self._member.is_waiting:
            self._hands.ask_record()
            await self._give_way()
            if chunk.place not in self._member.open:
                return False
            self._member.fill_hands()
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
            if self._member is not None and self._commits is not None:
                if self.config.auto_commit and self._is_started:
                    done = self._hands.given() if is_clean else self._hands.finished()
                    await self._commits.commit_quietly(done)
                await self._member.close()
        finally:
            await self._fetcher.close()
            await self.cluster.close()

    @property
    def _open(self) -> Collection[TopicPartition]:
        if self._member is not None and not self._places:
            return self._member.open
        return self._places

    async def _ask(self) -> None:
        """The application wants more: it is done with what it had."""
        assert self._is_started, "use the consumer in `async with`, or start it"
        self._hands.empty()
        await self._give_way()

    async def _give_way(self) -> None:
        """Hands are free; a rebalance that waits for it runs as far as closing what it takes."""
        if self._member is not None:
            self._member.hands_free.set()
            if self._member.is_waiting:
                await asyncio.sleep(0)

    def _fill(self) -> None:
        if self._member is not None:
            self._member.fill_hands()

    async def _take(self, timeout_s: float | None) -> Chunk | None:
        """The next chunk that may be handed out, one that was split first."""
        if self._hands.left:
            left = self._hands.next_left(self._may_give)
            if left is not None:
                return left
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while True:
            if self._member is not None and self._member.failure is not None:
                raise self._member.failure
            chunk = self._fetcher.take_ready(self._open)
            left_s = None if deadline is None else deadline - loop.time()
            if chunk is not None or not await self._fetcher.arrival(left_s):
                return chunk

    def _may_give(self, chunk: Chunk) -> bool:
        """Whether nobody took the chunk's partition, moved in it or paused it meanwhile."""
        place = chunk.place
        is_ours = place in self._open and self._fetcher.is_current(chunk)
        return is_ours and place not in self._fetcher.paused

    def _still_ours(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Those that may be given still; those that were paused meanwhile are kept for later."""
        for chunk in reversed(chunks):
            if chunk.place in self._fetcher.paused and self._fetcher.is_current(chunk):
                self._hands.left.appendleft(chunk)
        return [chunk for chunk in chunks if self._may_give(chunk)]

    async def _before_revoke(self, places: Places) -> None:
        if self.config.auto_commit and self._commits is not None:
            finished = self._hands.finished()
            due = {place: finished[place] for place in places if place in finished}
            await self._commits.commit_quietly(due)
        self._hands.forget(places)

    async def _commit_batch(self, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        assert self._commits is not None, "only a consumer with a group commits"
        await self._commits.commit_handed_out(offsets)

    async def _seek_to(self, time: int, places: Collection[TopicPartition]) -> None:
        chosen = list(places or self._open)
        for place, offset in (await self.offsets_for_times(dict.fromkeys(chosen, time))).items():
            self.seek(place, offset)

    async def _gathered(self, max_records: int, timeout_s: float) -> list[ConsumedRecord]:
        found: list[ConsumedRecord] = []
        while len(found) < max_records:
            batch = await self.next_batch(max_records - len(found), timeout_s=timeout_s)
            if batch is None:
                break
            found += batch.records()
        return found

"""Random histories of groups, and what a coordinator that lives through them says of each.

Records carry timestamps out of order now and then, commits of every temper go forth, back, stand
still, vanish and come again. Source: docs/spec/users.md §3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from barnabas.coordinator.commit_windows import CommitWindows
from barnabas.coordinator.group_health import BURROW, END_EVERY_MS, CommitSample, Verdict, evaluate
from barnabas.coordinator.lag import lag_of

TOPIC = "orders"
START_MS = 1_700_000_000_000
PARTITIONS = 4
COMMITS = "group string, topic string, partition int, offset bigint, ts_ms bigint, "
COMMITS += "source_offset bigint, metadata string"
RECORDS = "topic string, partition int, offset bigint, ts_ms bigint"
TEMPERS = ("good", "still", "back", "slow", "mixed")
PAUSES_MS = (0, 1_000, 10_000, 30_000, 60_000)


@dataclass(slots=True)
class World:
    """One topic with its records and everything that groups committed in it."""

    until_ms: int
    records: list[tuple[str, int, int, int]] = field(default_factory=list)
    commits: list[tuple[str, str, int, int | None, int, int, str]] = field(default_factory=list)
    edges: list[tuple[str, int, int, int]] = field(default_factory=list)
    logs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def end_at(self, partition: int, at_ms: int) -> int:
        """What ListOffsets says: the first offset stamped then or later, else the end."""
        later = [offset for offset, stamp in self.logs[partition] if stamp >= at_ms]
        return min(later, default=self.edges[partition][3])

    def unread_ms(self, partition: int, offset: int, end: int) -> int | None:
        """The timestamp of the first record from ``offset`` on, below ``end``."""
        found = [log for log in self.logs[partition] if offset <= log[0] < end]
        return min(found)[1] if found else None


def random_world(seed: int, groups: int, minutes: int = 50) -> World:
    random = Random(seed)
    world = World(START_MS + minutes * 60_000)
    for partition in range(PARTITIONS):
        _write(world, partition, random)
    for group in range(groups):
        temper = random.choice(TEMPERS)
        for partition in range(PARTITIONS):
            if random.random() < 0.7:
                _consume(world, f"group-{group}", partition, temper, random)
    return world


def _write(world: World, partition: int, random: Random) -> None:
    start = offset = random.randrange(50)
    at = START_MS - 100_000
    log: list[tuple[int, int]] = []
    while at < world.until_ms - 1 and len(log) < 300:
        log.append((offset, at + random.randrange(-5_000, 5_000)))
        offset += random.choice((1, 1, 1, 2))  # 2: compaction took one
        at += random.randrange(20_000)
    world.logs[partition] = log
    world.edges.append((TOPIC, partition, start, offset))
    world.records += [(TOPIC, partition, *record) for record in log]


def _consume(world: World, group: str, partition: int, temper: str, random: Random) -> None:
    at, offset = START_MS, world.edges[partition][2]
    stops = random.randrange(START_MS, world.until_ms)
    while True:
        at += random.choice(PAUSES_MS)
        if at >= world.until_ms or (at > stops and random.random() < 0.9):
            return
        forgets = random.random() < 0.03
        if not forgets:
            offset = _next(temper, offset, world.end_at(partition, at), random)
        committed = None if forgets else offset
        number = len(world.commits)
        world.commits.append((group, TOPIC, partition, committed, at, number, ""))


def _next(temper: str, offset: int, end: int, random: Random) -> int:
    if temper == "good":
        return end
    if temper == "back":
        return max(0, offset + random.randrange(-8, 10))
    if temper == "slow":
        return min(end, offset + 1)
    if temper == "mixed":
        return random.choice((end, offset, max(0, offset - 3), offset + 2))
    return offset


@dataclass(frozen=True, slots=True)
class Said:
    """What a coordinator says of one partition of a group at the end of a window."""

    commits: int
    offset: int
    end: int
    lag: int
    lag_ms: int
    verdict: str


def as_a_coordinator_says(
    world: World, window_ms: int, ends: range
) -> Iterator[tuple[tuple[str, int, int], Said]]:
    """By group, partition and end of window; live through every commit, judge at every end."""
    topic_partitions = sorted({(commit[0], commit[2]) for commit in world.commits})
    for group, partition in topic_partitions:
        mine = [commit for commit in world.commits if (commit[0], commit[2]) == (group, partition)]
        for end_ms in ends:
            said = _judged(world, [c for c in mine if c[4] < end_ms], end_ms, window_ms)
            if said is not None:
                yield (group, partition, end_ms), said


def _judged(world: World, seen: list[tuple], end_ms: int, window_ms: int) -> Said | None:  # type: ignore[type-arg]
    windows: CommitWindows[int] = CommitWindows()
    offset = None
    for _, _, partition, offset, at, number, _ in seen:
        if offset is None:
            windows.retain([])
        else:
            lag = lag_of(offset, 0, world.end_at(partition, at)).records
            windows.add_sample(partition, number, CommitSample(offset, at, lag))
    if offset is None:
        return None
    end, start = world.end_at(partition, end_ms), world.edges[partition][2]
    earlier = world.end_at(partition, end_ms - BURROW.commits * END_EVERY_MS)
    verdict = evaluate(
        windows.samples(partition), end=end, now_ms=end_ms, earlier_ends=[earlier], log_start=start
    )
    unread = world.unread_ms(partition, max(offset, start), end)
    return Said(
        commits=sum(c[3] is not None and c[4] >= end_ms - window_ms for c in seen),
        offset=offset,
        end=end,
        lag=lag_of(offset, start, end).records,
        lag_ms=0 if unread is None else max(0, end_ms - unread),
        verdict=Verdict(verdict).name,
    )

"""Clients that lose answers, send twice, restart and stop, at coordinators that fail over.

What counts is what clients do with partitions, not what the coordinator believes of it: no
partition is ever read by two at once, and when all is quiet every partition is read.
Source: docs/spec/consumer-groups.md §2.1, C12, C58, C87.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.protocol import consumer_protocol
from barnabas.protocol.consumer_protocol import Subscription, TopicPartitions
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.consumer_groups.beats import Beats, assigned
from tests.coordinator.coordinator_harness import CODES, Make, topic_id

FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
AGAIN = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNRELEASED_INSTANCE_ID,
)


class Client:
    """A consumer as Java's: it reads what it was assigned last, and gives up before it says so."""

    def __init__(self, name: str, beats: Beats, rng: random.Random, instance_id: str | None):
        self.name = name
        self.instance_id = instance_id
        self.beats = beats
        self.rng = rng
        self.lives = 0
        self.epoch = 0
        self.reading: set[Any] = set()
        self.to_give_up: set[Any] = set()
        self.to_take: set[Any] = set()
        self.is_full = True
        self.has_news = True
        self.names = ["t"]

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.lives}"

    def restart(self) -> None:
        """A new process: nothing of the old one is left."""
        self.lives += 1
        self.drop_all()

    def drop_all(self) -> None:
        self.epoch, self.is_full, self.has_news = 0, True, True
        self.reading, self.to_give_up, self.to_take = set(), set(), set()

    def give_up(self) -> None:
        """The callback of a rebalance has returned: then new partitions are read as well."""
        if self.to_give_up or self.to_take:
            self.reading = (self.reading - self.to_give_up) | self.to_take
            self.to_give_up, self.to_take, self.has_news = set(), set(), True

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.instance_id is not None:
            found["instance_id"] = self.instance_id
        if self.is_full or self.epoch == 0:
            found |= {"rebalance_timeout_ms": 20_000, "subscribed_topic_names": self.names}
        return found

    def owned(self) -> dict[str, list[int]] | None:
        if self.epoch == 0:
            return {}
        if not (self.is_full or self.has_news):
            return None
        found: dict[str, list[int]] = {}
        for name, partition in sorted(self.reading):
            found.setdefault(name, []).append(partition)
        return found

    def beat(self, *, is_lost: bool, times: int) -> None:
        """One heartbeat, perhaps sent twice, whose answer may not arrive."""
        owned, fields = self.owned(), self.fields()
        asked = [self.beats.send(self.member_id, self.epoch, owned, **fields) for _ in range(times)]
        if is_lost or not asked[0].is_answered:
            self.is_full = True  # as after a time-out: the next one says everything
            return
        self.take(asked[0])

    def take(self, asked: Any) -> None:
        code = CODES[asked.answer.error_code]
        if code in FENCED:
            self.drop_all()
            return
        if code:
            assert code in AGAIN, code
            self.is_full = True
            return
        self.epoch, self.is_full, self.has_news = asked.answer.member_epoch, False, False
        found = assigned(asked)
        if found is not None:
            wanted = {item if isinstance(item, tuple) else ("t", item) for item in found}
            self.to_give_up = self.reading - wanted
            self.to_take = wanted - self.reading
            if not self.to_give_up:
                self.give_up()

    def leave(self) -> None:
        epoch = -2 if self.instance_id is not None else -1
        if self.epoch:
            fields: dict[str, Any] = (
                {} if self.instance_id is None else {"instance_id": self.instance_id}
            )
            self.drop_all()
            self.beats.send(self.member_id, epoch, **fields)
        self.restart()


class ClassicClient(Client):
    """An eager consumer of the classic protocol: it gives up all, joins, and is assigned anew."""

    def __init__(self, name: str, beats: Beats, rng: random.Random) -> None:
        super().__init__(name, beats, rng, None)
        self.id = ""
        self.joining: Any = None
        self.syncing: Any = None

    @property
    def member_id(self) -> str:
        return self.id

    def drop_all(self) -> None:
        super().drop_all()
        self.id, self.joining, self.syncing = "", None, None

    def rejoin(self) -> None:
        self.reading, self.epoch, self.joining, self.syncing = set(), 0, None, None

    def give_up(self) -> None:
        """It has done so when it joined."""

    def beat(self, *, is_lost: bool, times: int) -> None:
        """The next request, or a look whether the last one is answered."""
        if self.epoch == 0:
            self.join(is_lost=is_lost)
        elif not self.is_synced():
            self.sync(is_lost=is_lost)
        elif not is_lost:
            code = self.beats.harness.heartbeat(self.id, self.epoch)
            self.judge(code)

    def is_synced(self) -> bool:
        return self.syncing is True

    def judge(self, code: ErrorCode) -> bool:
        """Whether it may go on."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.drop_all()
        elif code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self.rejoin()
        else:
            assert not code or code in AGAIN, code
        return not code

    def join(self, *, is_lost: bool) -> None:
        if self.joining is None:
            self.reading = set()
            data = consumer_protocol.build_subscription(Subscription(topics=self.names))
            self.joining = self.beats.harness.join(
                self.id, protocols={"range": data}, version=5, session_timeout_ms=60_000
            )
        if is_lost or not self.joining.is_answered:
            self.joining = None if is_lost else self.joining
            return
        asked, self.joining = self.joining, None
        if asked.code is ErrorCode.MEMBER_ID_REQUIRED:
            self.id = asked.answer.member_id
        elif self.judge(asked.code):
            self.id, self.epoch = asked.answer.member_id, asked.answer.generation_id
            self.members = [member.member_id for member in asked.answer.members]

    def sync(self, *, is_lost: bool) -> None:
        if self.syncing is None:
            shares = {
                member: self.share(index, len(self.members))
                for index, member in enumerate(self.members)
            }
            self.syncing = self.beats.harness.sync(self.id, self.epoch, shares)
        if is_lost or not self.syncing.is_answered:
            self.syncing = None if is_lost else self.syncing
            return
        asked = self.syncing
        if asked.code:
            self.syncing = None
        if self.judge(asked.code):
            self.syncing = True
            found = consumer_protocol.parse_assignment(bytes(asked.answer.assignment))
            self.reading = {
                (topic.topic, partition)
                for topic in found.assigned_partitions
                for partition in topic.partitions
            }

    def share(self, index: int, count: int) -> bytes:
        """What the leader gives a member: every topic, whether that one subscribes or not."""
        counts = self.beats.harness.topics.counts
        assigned = [
            TopicPartitions(topic=name, partitions=list(range(index, counts[name], count)))
            for name in ("t", "u")
        ]
        return consumer_protocol.build_assignment(
            consumer_protocol.Assignment(assigned_partitions=assigned)
        )

    def leave(self) -> None:
        member_id = self.id
        self.restart()
        if member_id:
            self.beats.harness.leave(member_id)


class Model:
    """Some clients of one group."""

    def __init__(self, beats: Beats, seed: int, *, classic: int = 0) -> None:
        self.rng = random.Random(seed)
        self.beats = beats
        self.partitions = {"t": 6, "u": 4}
        self.clients = [
            Client(f"c{index}", beats, self.rng, f"i{index}" if index % 2 else None)
            for index in range(self.rng.randint(2, 5))
        ]
        self.clients += [ClassicClient(f"x{index}", beats, self.rng) for index in range(classic)]
        self.epoch = 0
        self.active = list(self.clients)

    def roll(self) -> None:
        """Only some of the application run from now on: of one protocol, or of both."""
        classic = [client for client in self.clients if isinstance(client, ClassicClient)]
        newer = [client for client in self.clients if client not in classic]
        some: list[list[Client]] = [[*classic], newer, [*classic, self.rng.choice(newer)]]
        self.active = self.rng.choice(some)
        for client in self.clients:
            if client not in self.active:
                client.leave()

    def check(self) -> None:
        reading: dict[Any, str] = {}
        for client in self.clients:
            for partition in client.reading:
                assert partition not in reading, (partition, reading[partition], client.name)
                reading[partition] = client.name
        self.beats.check()
        self.check_commits()

    def check_commits(self) -> None:
        """C58: nobody commits from an earlier epoch what another one holds."""
        group: Any = self.beats.harness.coordinator.registry.groups.get("g")
        if group is None or not group.is_consumer:
            return
        for client in self.clients:
            for partition in client.reading:
                code = group.partitions_problem(
                    client.member_id, client.epoch, [partition], self.beats.harness.catalog
                )
                holder = group.holders.get((topic_id(partition[0]), partition[1]))
                member = group.consumers.get(client.member_id)
                if not code and member is not None and client.epoch < member.epoch:
                    assert holder == client.member_id

    def step(self) -> None:
        client = self.rng.choice(self.active)
        dice = self.rng.random()
        harness = self.beats.harness
        if dice < 0.6:
            client.beat(is_lost=self.rng.random() < 0.15, times=1 + (self.rng.random() < 0.1))
        elif dice < 0.8:
            client.give_up()
        elif dice < 0.84:
            client.leave()
        elif dice < 0.88:
            client.restart()
        elif dice < 0.91:
            client.names = self.rng.choice([["t"], ["u"], ["t", "u"], []])
            client.is_full = True
        elif dice < 0.93:
            name = self.rng.choice(["t", "u"])
            self.partitions[name] += 1
            harness.catalog.change(name, self.partitions[name])
        elif dice < 0.96:
            self.epoch += 1
            harness.reload(self.epoch)
        elif dice < 0.98:
            harness.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
            client.beat(is_lost=False, times=1)
            harness.log.append_fails_with = None
        else:
            harness.wait(self.rng.choice([0.2, 1.0, 4.0]))

    def quiet(self) -> Iterator[None]:
        """Everybody behaves for a while, longer than any session."""
        for client in self.clients:
            client.names = ["t", "u"]
            client.is_full = True
            if isinstance(client, ClassicClient):
                client.rejoin()
        for _ in range(40):
            for client in self.clients:
                client.give_up()
                client.beat(is_lost=False, times=1)
                yield
            self.beats.harness.wait(2)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("interval_ms", [0, 1000])
def test_no_partition_is_read_by_two_and_every_one_in_the_end(
    make_harness: Make, seed: int, interval_ms: int
) -> None:
    beats = Beats(make_harness(consumer_assignment_interval_ms=interval_ms))
    model = Model(beats, seed)
    for _ in range(150):
        model.step()
        model.check()
    for _ in model.quiet():
        model.check()
    assert beats.group.state_name == "Stable"
    wanted = {(name, p) for name, count in model.partitions.items() for p in range(count)}
    assert set().union(*(client.reading for client in model.clients)) == wanted


@pytest.mark.parametrize("seed", range(30))
def test_the_same_while_an_application_is_rolled(make_harness: Make, seed: int) -> None:
    """C53 to C57: members of both protocols come and go."""
    beats = Beats(make_harness(consumer_assignment_interval_ms=0))
    model = Model(beats, seed, classic=1 + seed % 3)
    for step in range(400):
        if not step % 30:
            model.roll()
        model.step()
        model.check()
    model.active = model.clients
    for _ in model.quiet():
        model.check()
    group = beats.harness.group()
    assert group.state_name == "Stable"
    wanted = {(name, p) for name, count in model.partitions.items() for p in range(count)}
    assert set().union(*(client.reading for client in model.clients)) == wanted

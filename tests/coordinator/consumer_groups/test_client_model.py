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


class Model:
    """Some clients of one group."""

    def __init__(self, beats: Beats, seed: int) -> None:
        self.rng = random.Random(seed)
        self.beats = beats
        self.partitions = {"t": 6, "u": 4}
        self.clients = [
            Client(f"c{index}", beats, self.rng, f"i{index}" if index % 2 else None)
            for index in range(self.rng.randint(2, 5))
        ]
        self.epoch = 0

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
        client = self.rng.choice(self.clients)
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

"""Metadata as bytes that are kept: the same as made anew, whatever changed in between."""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.broker.handlers.call import Call
from barnabas.broker.handlers.encoded_topics import KEPT_MAX
from barnabas.broker.handlers.metadata import MetadataHandler
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.storage.cooperative import at_once
from barnabas.protocol.codec.compiler import encode
from barnabas.protocol.codec.encoded import EncodedElements
from barnabas.protocol.messages import metadata, update_metadata
from tests.controller.test_cluster_handlers import broker
from tests.handlers.peer import SomePeer, call

LISTENERS = ("CLIENT", "INTERNAL")


def state(index: int, leader: int, epoch: int, *, isr: list[int]) -> Any:
    return update_metadata.PartitionState(
        partition_index=index, leader=leader, leader_epoch=epoch, isr=isr, replicas=[1, 2, 3]
    )


class Changes:
    """A cluster in which something changes: leaders, topics and their ids, nodes, listeners."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cache = MetadataCache()
        self.handler = MetadataHandler(self.cache, "c", create=None)
        self.update(range(6))

    def update(self, topics: Any, kind: int = 1) -> None:
        choose = self.random.choice
        nodes = self.random.sample((1, 2, 3), choose((1, 2, 3)))
        states = [
            update_metadata.TopicState(
                topic_name=f"t{number}",
                topic_id=bytes([choose((1, 1, 1, 2)), number]) * 8,
                partition_states=[
                    state(index, choose((1, 2, 3, -1, -2)), choose((0, 1)), isr=[1])
                    for index in range(number)
                ],
            )
            for number in topics
        ]
        brokers = [broker(node, *self.random.sample(LISTENERS, choose((1, 2)))) for node in nodes]
        self.cache.update(
            update_metadata.UpdateMetadataRequest(
                type=kind, controller_id=1, live_brokers=brokers, topic_states=states
            )
        )

    def change(self) -> None:
        self.update(self.random.sample(range(1, 8), self.random.choice((0, 1, 2))))

    def ask(self, handler: MetadataHandler, asked: Call) -> bytes:
        answer = at_once(handler.describing(asked))
        assert isinstance(answer.topics, EncodedElements)
        return encode(answer, asked.version)

    def asked(self) -> Call:
        choose = self.random.choice
        names = self.random.sample(range(9), 3)
        topics = choose((None, [metadata.Topic(name=f"t{number}") for number in names]))
        version = choose((0, 5, 9, 12)) if topics is not None else choose((1, 5, 9, 12))
        return call(
            metadata.MetadataRequest(topics=topics), version, peer=SomePeer(choose(LISTENERS))
        )


@pytest.mark.parametrize("seed", range(30))
def test_answers_are_those_of_a_handler_that_keeps_nothing(seed: int) -> None:
    changes = Changes(seed)
    for _ in range(60):
        if changes.random.random() < 0.4:
            changes.change()
        asked = changes.asked()
        fresh = MetadataHandler(changes.cache, "c", create=None)
        assert changes.ask(changes.handler, asked) == changes.ask(fresh, asked)


def test_what_is_encoded_says_what_objects_say() -> None:
    """Answers that tell operations are made of objects: the oracle of the others."""
    changes = Changes(1)
    for version in range(8, 13):
        plain, told = (
            at_once(
                changes.handler.describing(
                    call(
                        metadata.MetadataRequest(
                            topics=None, include_topic_authorized_operations=operations
                        ),
                        version,
                    )
                )
            )
            for operations in (False, True)
        )
        for topic in told.topics:
            topic.topic_authorized_operations = -(2**31)
        assert encode(plain, version) == encode(told, version)


def test_a_client_that_asks_in_every_version_has_few_of_them_kept() -> None:
    changes = Changes(1)
    for version in range(1, 13):
        changes.ask(changes.handler, call(metadata.MetadataRequest(topics=None), version))
    assert len(changes.handler._encoded) == KEPT_MAX


def test_only_the_topic_that_changed_is_encoded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = Changes(1)
    nodes = [broker(1, *LISTENERS)]
    everything = call(metadata.MetadataRequest(topics=None), 12)

    def tell(*topics: update_metadata.TopicState) -> None:
        changes.cache.update(
            update_metadata.UpdateMetadataRequest(live_brokers=nodes, topic_states=topics)
        )

    def topic(name: str, epoch: int) -> update_metadata.TopicState:
        return update_metadata.TopicState(
            topic_name=name, partition_states=[state(0, 1, epoch, isr=[1])]
        )

    tell(topic("x", 0), topic("y", 0))
    changes.ask(changes.handler, everything)
    (kept,) = changes.handler._encoded.values()
    encoded: list[str | None] = []
    write = kept._encode

    def recording(one: metadata.TopicResult) -> bytes:
        encoded.append(one.name)
        return write(one)

    monkeypatch.setattr(kept, "_encode", recording)
    tell(topic("y", 1))
    changes.ask(changes.handler, everything)
    changes.ask(changes.handler, everything)
    assert encoded == ["y"]
    tell(update_metadata.TopicState(topic_name="x", partition_states=[state(0, -2, 0, isr=[])]))
    changes.ask(changes.handler, everything)
    assert "x" not in kept._kept

"""What heartbeats of the consumer protocol say. Source: docs/spec/consumer-groups.md §12."""

from __future__ import annotations

import base64

from barnabas.client.consumer.consumer_config import ConsumerConfig
from barnabas.client.consumer.epoch_member import EpochMember, TopicIdPartitions
from barnabas.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

CONFIG = ConsumerConfig(
    group_protocol="consumer", max_poll_interval_ms=7_000, group_remote_assignor="range"
)
TOPIC_ID = bytes(range(16))
NOTHING: TopicIdPartitions = frozenset()
BOTH = frozenset({(TOPIC_ID, 0), (TOPIC_ID, 1)})


def member_of(config: ConsumerConfig = CONFIG) -> EpochMember:
    member = EpochMember("g", config)
    member.subscribe(["u", "t"], None)
    return member


def answer(epoch: int, *partitions: int, is_told: bool = True) -> ConsumerGroupHeartbeatResponse:
    topics = [TopicPartitions(topic_id=TOPIC_ID, partitions=partitions)] if partitions else []
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch,
        heartbeat_interval_ms=5_000,
        assignment=Assignment(topic_partitions=topics) if is_told else None,
    )


def is_bare(request: ConsumerGroupHeartbeatRequest) -> bool:
    return (
        request.rebalance_timeout_ms == -1
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.topic_partitions is None
    )


def test_a_join_says_all_there_is_to_say() -> None:
    request = member_of().heartbeat(NOTHING)
    assert request.member_epoch == 0
    assert len(base64.urlsafe_b64decode(request.member_id + "==")) == 16
    assert request.rebalance_timeout_ms == 7_000
    assert request.server_assignor == "range"
    assert request.subscribed_topic_names == ["t", "u"]
    assert request.subscribed_topic_regex is None
    assert request.topic_partitions == []


def test_a_heartbeat_without_news_is_bare() -> None:
    member = member_of()
    member.heartbeat(NOTHING)
    member.accept(answer(3))
    request = member.heartbeat(NOTHING)
    assert request.member_epoch == 3
    assert is_bare(request)


def test_what_is_owned_is_said_once_it_has_changed() -> None:
    member = member_of()
    member.heartbeat(NOTHING)
    member.accept(answer(1, 0, 1))
    assert member.target == BOTH
    assert member.has_news(BOTH)
    assert member.heartbeat(BOTH).topic_partitions == [
        TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])
    ]
    assert not member.has_news(BOTH)
    assert is_bare(member.heartbeat(BOTH))


def test_to_own_nothing_any_more_is_said() -> None:
    member = member_of()
    member.heartbeat(NOTHING)
    member.accept(answer(1, 0, 1))
    member.heartbeat(BOTH)
    assert member.heartbeat(NOTHING).topic_partitions == []


def test_an_answer_without_an_assignment_leaves_the_target() -> None:
    member = member_of()
    member.accept(answer(1, 0, 1))
    member.accept(answer(2, is_told=False))
    assert (member.epoch, member.target) == (2, BOTH)


def test_after_a_failure_everything_is_said_again() -> None:
    member = member_of()
    member.heartbeat(NOTHING)
    member.accept(answer(1, 0, 1))
    member.heartbeat(BOTH)
    member.forget_said()
    request = member.heartbeat(BOTH)
    assert request.member_epoch == 1
    assert request.rebalance_timeout_ms == 7_000
    assert request.subscribed_topic_names == ["t", "u"]
    assert request.topic_partitions == [TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]


def test_an_expression_takes_the_place_of_names_and_is_dropped_for_names() -> None:
    member = member_of()
    member.heartbeat(NOTHING)
    member.accept(answer(1))
    member.subscribe([], "t.*")
    request = member.heartbeat(NOTHING)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "t.*")
    member.subscribe(["t"], None)
    request = member.heartbeat(NOTHING)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], "")
    member.forget_said()
    assert member.heartbeat(NOTHING).subscribed_topic_regex == ""


def test_an_epoch_of_0_is_no_membership_and_the_join_is_said_again() -> None:
    member = member_of()
    member.heartbeat(NOTHING)
    member.accept(answer(0))
    assert not member.is_member
    assert member.identity.generation == -1
    assert member.heartbeat(NOTHING).rebalance_timeout_ms == 7_000


def test_who_rejoins_keeps_its_id_and_owns_nothing() -> None:
    member = member_of()
    first = member.heartbeat(NOTHING)
    member.accept(answer(5, 0, 1))
    member.drop_out()
    assert member.identity.generation == -1
    assert member.target == NOTHING
    member.rejoin()
    again = member.heartbeat(NOTHING)
    assert (again.member_id, again.member_epoch, again.topic_partitions) == (first.member_id, 0, [])


def test_a_static_member_says_that_it_will_be_back() -> None:
    static = ConsumerConfig(group_protocol="consumer", group_instance_id="me")
    assert (member_of().farewell().member_epoch, member_of(static).farewell().member_epoch) == (
        -1,
        -2,
    )
    assert member_of(static).farewell().instance_id == "me"
    assert member_of(static).heartbeat(NOTHING).instance_id == "me"

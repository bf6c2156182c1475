"""Counts of topics: by name for so many, for ever growing, and the rest together."""

from __future__ import annotations

from barnabas.broker.replication.topic_traffic import OTHERS, TrafficByTopic


def told(traffic: TrafficByTopic, names_max: int = 2) -> dict[str, int]:
    return {topic: counts.bytes_in for topic, counts in traffic.told(names_max)}


def test_a_topic_without_traffic_is_not_told() -> None:
    traffic = TrafficByTopic()
    traffic.of("idle")
    assert told(traffic) == {}
    traffic.of("idle").bytes_in += 5
    assert told(traffic) == {"idle": 5}


def test_those_who_came_when_all_names_were_given_are_told_together() -> None:
    traffic = TrafficByTopic()
    for topic, count in (("a", 1), ("b", 2), ("c", 4), ("d", 8)):
        traffic.of(topic).bytes_in += count
        traffic.of(topic).records_in += 1
    assert told(traffic) == {"a": 1, "b": 2, OTHERS: 12}
    ((_, others),) = ((topic, counts) for topic, counts in traffic.told(2) if topic == OTHERS)
    assert others.records_in == 2


def test_the_sum_of_the_others_never_falls_when_topics_are_deleted_or_named() -> None:
    traffic = TrafficByTopic()
    for topic, count in (("a", 1), ("b", 2), ("c", 4)):
        traffic.of(topic).bytes_in += count
    assert told(traffic, 1) == {"a": 1, OTHERS: 6}
    traffic.forget(["a", "b", "never heard of"])
    assert told(traffic, 1) == {OTHERS: 6}
    traffic.of("new").bytes_in += 16
    assert told(traffic, 1) == {"new": 16, OTHERS: 6}


def test_a_topic_that_is_made_anew_counts_anew() -> None:
    traffic = TrafficByTopic()
    traffic.of("a").bytes_out += 7
    traffic.forget(["a"])
    assert traffic.of("a").is_none

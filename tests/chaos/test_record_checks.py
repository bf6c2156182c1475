"""The judges of records find what they are there for, and nothing else."""

from __future__ import annotations

from tests.chaos.record_checks import (
    Sent,
    differences,
    disorder,
    duplicates,
    inconsistencies,
    inventions,
    lost,
    missing,
    unread,
)

LOG = {(0, 0): b"a", (0, 1): b"b", (1, 0): b"c"}
SENT = Sent({b"a": 0, b"b": 1, b"c": 2, b"d": 3}, {b"a": (0, 0), b"b": (0, 1)})


def test_a_whole_log_passes() -> None:
    assert lost(SENT.acknowledged, LOG) == duplicates(LOG) == inventions([SENT], LOG) == []
    assert disorder(SENT) == inconsistencies(LOG.items(), LOG) == []
    assert unread({0: 2, 1: 1}, LOG, LOG) == []
    assert differences({"one": {0: b"xy"}, "two": {0: b"xy"}}) == []


def test_an_acknowledged_record_that_is_missing_or_elsewhere_is_found() -> None:
    assert lost({b"a": (0, 7)}, LOG)
    assert missing({b"z": 0}, LOG)
    assert lost({b"a": (0, 1)}, LOG)


def test_a_record_under_two_offsets_is_found() -> None:
    assert duplicates({**LOG, (1, 9): b"a"})


def test_a_record_that_nobody_sent_is_found() -> None:
    assert inventions([Sent()], LOG)


def test_records_in_another_order_than_they_were_sent_in_are_found() -> None:
    assert disorder(Sent({b"a": 0, b"b": 1}, {b"a": (0, 5), b"b": (0, 4)}))
    assert not disorder(Sent({b"a": 0, b"b": 1}, {b"a": (0, 5), b"b": (1, 4)}))


def test_a_record_that_was_read_and_then_vanished_is_found() -> None:
    assert inconsistencies([((0, 1), b"x")], LOG)
    assert inconsistencies([((0, 2), b"b")], LOG)


def test_a_record_that_a_group_passed_over_is_found() -> None:
    assert unread({0: 2}, [(0, 0)], LOG) == ["(0, 1) was passed over"]
    assert unread({0: 1}, [(0, 0)], LOG) == []


def test_replicas_that_differ_are_found() -> None:
    found = differences({"one": {0: b"xyz", 1: b""}, "two": {0: b"xzz"}})
    assert found == ["partition 0: one has 3 bytes, two 3, they differ from 1"]
    assert differences({"one": {0: b"xy"}, "two": {}})

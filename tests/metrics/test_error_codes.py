"""Codes of answers are found at every depth, and of long ones only so many are looked for."""

from __future__ import annotations

from typing import Final

import pytest

from barnabas.broker.metrics.error_codes import LOOKED_AT, bounded_error_finder, error_finder
from barnabas.protocol import api
from barnabas.protocol.codec.compiler import layout_in
from barnabas.protocol.messages import heartbeat, offset_commit, offset_fetch

VERSION: Final = 4


def found(answer: object, *, is_long: bool = False) -> list[int]:
    codes: list[int] = []
    find = bounded_error_finder if is_long else error_finder
    find(type(answer), VERSION)(answer, codes.append)
    return codes


def committed(*codes: int) -> offset_commit.OffsetCommitResponse:
    results = [
        offset_commit.PartitionResult(partition_index=index, error_code=code)
        for index, code in enumerate(codes)
    ]
    return offset_commit.OffsetCommitResponse(
        topics=[offset_commit.TopicResult(name="t", partitions=results)]
    )


@pytest.mark.parametrize("is_long", [False, True])
def test_the_code_of_a_request_and_those_of_its_partitions_are_found(*, is_long: bool) -> None:
    assert found(heartbeat.HeartbeatResponse(error_code=27), is_long=is_long) == [27]
    assert found(heartbeat.HeartbeatResponse(), is_long=is_long) == []
    assert found(committed(0, 16, 0, 16, 3), is_long=is_long) == [16, 16, 3]


@pytest.mark.parametrize("is_long", [False, True])
def test_lists_that_are_null_and_those_of_several_depths_are_walked(*, is_long: bool) -> None:
    partition = offset_fetch.PartitionResult(partition_index=0, error_code=3)
    topic = offset_fetch.TopicResult(name="t", partitions=[partition])
    answer = offset_fetch.OffsetFetchResponse(topics=[topic], error_code=14)
    assert sorted(found(answer, is_long=is_long)) == [3, 14]


def test_of_a_long_answer_only_so_many_places_are_looked_at() -> None:
    assert found(committed(*[7] * (LOOKED_AT + 5)), is_long=True) == [7] * LOOKED_AT


def test_there_is_a_finder_for_every_api() -> None:
    for key in range(200):
        spec = api.lookup(key)
        if spec is not None:
            for version in range(spec.versions[0], spec.versions[1] + 1):
                error_finder(spec.response, version)(spec.response(), print)
                bounded_error_finder(spec.response, version)(spec.response(), print)


@pytest.mark.parametrize("code", [0, 16])
def test_codes_of_rows_are_found_without_making_an_object_where_there_is_none(code: int) -> None:
    response, result = offset_commit.OffsetCommitResponse, offset_commit.PartitionResult
    layout = layout_in(response, result, 8)
    results = layout.alike(result(error_code=code), 20, {})
    codes: list[int] = []
    answer = response(topics=[offset_commit.TopicResult(name="t", partitions=results)])
    error_finder(response, 8)(answer, codes.append)
    bounded_error_finder(response, 8)(answer, codes.append)
    assert codes == [code] * 40 if code else not codes
    assert (results.data_in(layout) is None) == bool(code)

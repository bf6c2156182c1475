"""Headers, also those that lie or that nobody knows. Source: docs/spec/protocol.md §2.1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import frame
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import CorruptRequest


@given(
    st.sampled_from([(8, 7), (8, 8), (18, 0), (18, 4), (7, 1), (3, 12)]),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.none() | st.text(max_size=300),
    st.binary(max_size=20),
)
def test_a_request_frame_is_read_back(
    api: tuple[int, int], correlation_id: int, client_id: str | None, body: bytes
) -> None:
    whole = frame.request_frame(*api, correlation_id, client_id, body)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    header, start = frame.parse_request_header(whole[4:])
    assert header == (*api, correlation_id, client_id)
    assert whole[4 + start :] == body


def test_the_first_controlled_shutdown_has_no_client_id() -> None:
    whole = frame.request_frame(ApiKey.CONTROLLED_SHUTDOWN, 0, 5, "c", b"\0\0\0\1")
    header, start = frame.parse_request_header(whole[4:])
    assert (header.client_id, start) == (None, 8)


def test_an_api_versions_request_of_the_future_has_a_readable_header() -> None:
    whole = frame.request_frame(ApiKey.API_VERSIONS, 3, 77, "client", b"what we cannot know")
    future = whole[4:6] + b"\0\x63" + whole[8:16] + b"ient\xff\xff\xff\xff\xff"
    header, _ = frame.parse_request_header(future)
    assert header == (ApiKey.API_VERSIONS, 99, 77, "client")


def test_an_unknown_api_has_a_readable_header() -> None:
    header, _ = frame.parse_request_header(b"\x03\xe8\0\1" + b"\0\0\0\5" + b"\0\1c" + b"rest")
    assert header == (1000, 1, 5, "c")


def test_unknown_tags_of_a_header_are_skipped() -> None:
    header, start = frame.parse_request_header(
        b"\0\x08\0\x08" + b"\0\0\0\1" + b"\0\1c" + b"\1\5\2ab" + b"body"
    )
    assert (header.client_id, start) == ("c", 16)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\x08\0\x08\0\0\0\1",
        b"\0\x08\0\x08\0\0\0\1\0\5abc",
        b"\0\x08\0\x08\0\0\0\1\xff\xfe\0",
        b"\0\x08\0\x08\0\0\0\1\0\1\xff\0",
        b"\0\x08\0\x08\0\0\0\1\0\1c",
        b"\0\x08\0\x08\0\0\0\1\0\1c\xff\xff\xff\xff\xff",
        b"\0\x08\0\x08\0\0\0\1\0\1c\x02\0\0",
    ],
)
def test_a_header_that_cannot_be_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRequest):
        frame.parse_request_header(data)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_corrupt(data: bytes) -> None:
    try:
        _, start = frame.parse_request_header(data)
    except CorruptRequest:
        return
    assert start <= len(data)


def test_a_response_header_cut_short_is_corrupt() -> None:
    for version, data in (
        (0, b"\0\0\0"),
        (1, b"\0\0\0\1"),
        (1, b"\0\0\0\1\1"),
        (1, b"\0\0\0\1\xff"),
    ):
        with pytest.raises(CorruptRequest):
            frame.parse_response_header(data, version)

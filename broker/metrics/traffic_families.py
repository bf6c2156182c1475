"""Metrics of what passes a node: errors of answers, records of topics, batches of commits.

Source: docs/spec/console.md §6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.broker.replication.topic_traffic import TrafficByTopic
from barnabas.coordinator import commit_meter
from barnabas.coordinator.commit_meter import CommitMeter
from barnabas.protocol.errors import ErrorCode

from .exposition import family, histogram
from .request_meter import RequestMeter

_NAMES: Final = {int(code): code.name for code in ErrorCode}


def error_families(meters: Mapping[str, RequestMeter]) -> Iterator[str]:
    """Codes in answers by API: as many as answers carry, one for each partition for instance."""
    yield from family(
        "barnabas_request_errors_total",
        "counter",
        "Error codes in answers: one for each topic or partition that was answered so.",
        (
            ({"api": api, "code": _name(code)}, count)
            for api, meter in sorted(meters.items())
            for code, count in sorted(meter.errors.items())
        ),
    )


def _name(code: int) -> str:
    return _NAMES.get(code, str(code))


def topic_families(traffic: TrafficByTopic, names_max: int) -> Iterator[str]:
    """What is written to each topic here, as leader, and what consumers are sent of it."""
    told = sorted(traffic.told(names_max), key=lambda each: each[0])
    for name, meaning, values in (
        ("bytes_in", "Bytes of batches that were appended.", [t.bytes_in for _, t in told]),
        ("records_in", "Records that were appended.", [t.records_in for _, t in told]),
        ("bytes_out", "Bytes that consumers were sent.", [t.bytes_out for _, t in told]),
    ):
        yield from family(
            f"barnabas_topic_{name}_total",
            "counter",
            meaning,
            (({"topic": each[0]}, value) for each, value in zip(told, values, strict=True)),
        )


def commit_families(meter: CommitMeter) -> Iterator[str]:
    """How many commits share a batch, and how long until it is committed."""
    yield from histogram(
        "barnabas_commit_batch_requests",
        "Commits, and other writes of groups, that were appended as one batch.",
        commit_meter.SIZES,
        [({}, meter.sizes_by_bucket, meter.requests)],
    )
    yield from histogram(
        "barnabas_commit_seconds",
        "From the append of such a batch until every replica in sync had it.",
        commit_meter.BOUNDS_S,
        [({}, meter.buckets, meter.seconds)],
    )

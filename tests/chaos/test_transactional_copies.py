"""Transactional copy jobs of three client libraries copy each record exactly once, whoever is hurt.

Source: docs/spec/reliability.md §3; docs/spec/transactions.md §9.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.transaction_campaign import JOB_FAULTS, SETTINGS, Fault, Report, run, schedule
from tests.harness.deployments import KafkaCluster

SEED = 1


def tell(line: str) -> None:
    print(line)  # noqa: T201 - pytest shows it when the test fails


def nothing(fault: Fault) -> None:
    raise AssertionError(f"{fault} where only jobs are to be hurt")


def is_clean(report: Report) -> None:
    """Nothing was found, in a history that has something to find it in."""
    tell(str(report))
    assert report.anomalies == []
    assert report.findings == []
    assert report.transactions["committed"] > 20
    assert report.transactions["aborted"] > 0
    assert report.readings > 20


@pytest.mark.kafka
def test_jobs_that_are_killed_and_frozen_copy_everything_once_on_apache_kafka() -> None:
    """The jobs and the checker themselves: what they find elsewhere is not their own mistake."""
    kafka = KafkaCluster(1, SETTINGS)
    try:
        rounds = schedule(2, SEED, JOB_FAULTS)
        is_clean(asyncio.run(run(kafka, nothing, rounds, seed=SEED, records=2_000, tell=tell)))
    finally:
        kafka.stop()

"""Transactional copy jobs of three client libraries copy each record exactly once, whoever is hurt.

Source: docs/spec/reliability.md §3; docs/spec/transactions.md §9.
"""

from __future__ import annotations

import asyncio

import pytest

from barnabas.console.development.cluster import Cluster
from tests.chaos.transaction_campaign import (
    ALL_FAULTS,
    JOB_FAULTS,
    OWN_SETTINGS,
    SETTINGS,
    Fault,
    NodeFaults,
    Report,
    run,
    schedule,
)
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


def test_jobs_and_nodes_that_are_hurt_copy_everything_once() -> None:
    with Cluster(3, settings=OWN_SETTINGS) as cluster:
        rounds = [Fault.JOB_KILL, Fault.NODE_KILL]
        hurt = NodeFaults(cluster, SEED)
        is_clean(asyncio.run(run(cluster, hurt, rounds, seed=SEED, records=2_000, tell=tell)))


@pytest.mark.nightly
def test_a_million_records_are_copied_once_in_a_hundred_rounds() -> None:
    with Cluster(3, settings=OWN_SETTINGS) as cluster:
        rounds = schedule(100, SEED, ALL_FAULTS)
        hurt = NodeFaults(cluster, SEED)
        work = run(
            *(cluster, hurt, rounds),
            seed=SEED,
            records=1_000_000,
            batch=500,
            tell=tell,
            patience_s=3_600,
        )
        report = asyncio.run(work)
        is_clean(report)
        assert report.faults.keys() >= {fault.value for fault in ALL_FAULTS}

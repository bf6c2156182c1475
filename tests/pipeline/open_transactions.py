"""Transactions that are over for whoever ended them, and are not yet for readers of the log."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.client.topology import TopicPartition
from barnabas.pipeline.blocking_client import client_for
from barnabas.pipeline.cluster_requests import offsets_at
from barnabas.pipeline.source.offsets_json import LATEST
from barnabas.pipeline.source.options import READ_COMMITTED, READ_UNCOMMITTED
from tests.harness.waiting import eventually


def await_none_open(bootstrap: str, topic: str, partitions: Iterable[int]) -> None:
    """Return once readers of committed records may read to the end.

    A commit is decided before its markers are in the partitions.
    """
    client = client_for(bootstrap)
    places = dict.fromkeys([TopicPartition(topic, number) for number in partitions], LATEST)

    def has_ended() -> bool:
        stable, end = (
            client.run(offsets_at(client.cluster, places, isolation))
            for isolation in (READ_COMMITTED, READ_UNCOMMITTED)
        )
        return stable == end

    eventually(has_ended, what=f"no transaction is open in {topic}")

"""docs/client/transactions.md: its examples run on Apache Kafka, its states are the table's."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path

import pytest

from barnabas.client.producer.transaction_states import drawing
from tests.harness.deployments import KafkaCluster
from tests.harness.page_examples import ROOT, Reader, examples
from tests.harness.transactional_clusters import transactional_kafka

__all__ = ["transactional_kafka"]

PAGE = ROOT / "docs" / "client" / "transactions.md"


@pytest.mark.kafka
def test_every_example_runs_by_itself_and_in_any_order(
    transactional_kafka: KafkaCluster, tmp_path: Path
) -> None:
    known = {
        "bootstrap": transactional_kafka.bootstrap,
        "zookeeper": transactional_kafka.zookeeper,
    }
    found = examples(PAGE)
    assert len(found) == 4

    async def follow() -> None:
        for example in random.sample(found, len(found)):
            await Reader(known, tmp_path).run(example)

    asyncio.run(follow())


def test_the_states_are_those_of_the_table() -> None:
    drawn = re.search(r"<!-- states -->\n```text\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    assert drawn is not None
    assert drawn[1] == drawing()

"""docs/client/transactions.md: it is as true of Apache Kafka, and its states are the table's.

On our own cluster its examples run with those of all pages (tests/test_pages.py).
"""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path

import pytest

from barnabas.client.producer.transaction_states import drawing
from tests.harness.deployments import Deployment
from tests.harness.page_examples import ROOT, Reader, examples
from tests.harness.transactional_clusters import transactional

__all__ = ["transactional"]

PAGE = ROOT / "docs" / "client" / "transactions.md"


@pytest.mark.parametrize(
    "transactional", [pytest.param("kafka", marks=pytest.mark.kafka)], indirect=True
)
def test_every_example_runs_by_itself_and_in_any_order(
    transactional: Deployment, tmp_path: Path
) -> None:
    known = {"bootstrap": transactional.bootstrap, "zookeeper": transactional.zookeeper}
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

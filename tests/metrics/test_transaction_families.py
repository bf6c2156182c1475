"""What metrics tell of transactions: docs/spec/transactions.md §6."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from barnabas.broker.metrics.transaction_families import (
    LATE_MS,
    marker_families,
    producer_families,
    verification_families,
)
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import ErrorCode
from tests.handlers.conftest import context, shelf
from tests.handlers.conftest import replicas as replicas
from tests.markers.test_sender import Sending
from tests.replication.logs import NOW_MS, a_batch, follow, lead, turns
from tests.replication.test_last_stable_offset import append, in_transaction, marker
from tests.storage.simulated import in_simulated_time
from tests.verification.node_links import running
from tests.verification.test_verifier import THERE, Asking, answer

__all__ = ["context", "shelf"]

TIMEOUT_MS = 900_000


def samples(lines: Iterator[str]) -> dict[str, float]:
    found = {}
    for line in "".join(lines).splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


@in_simulated_time
async def test_markers_that_wait_for_a_stuck_leader_are_told() -> None:
    """T6.3."""
    sending = Sending()
    sending.lead(("t", 0, 2), ("u", 0, -1), ("v", 0, 3))
    async with running(sending.sender.run):
        sending.send(("t", 0), ("u", 0), ("v", 0))
        await sending.nodes[2].asked()
        await sending.nodes[3].asked()
        sending.nodes[3].hang_up()
        await turns(5)
        found = samples(marker_families(sending.sender))
        assert found == {
            'barnabas_transaction_markers{state="open"}': 3,
            'barnabas_transaction_markers{state="under_way"}': 1,
            'barnabas_transaction_markers{state="delayed"}': 2,
            'barnabas_transaction_markers{state="unknown_leader"}': 1,
        }
        await asyncio.sleep(60)
        assert (
            samples(marker_families(sending.sender))['barnabas_transaction_markers{state="open"}']
            == 3
        )


async def test_questions_and_refusals_are_counted() -> None:
    asking = Asking()
    async with running(asking.verifier.run):
        asking.ask("mine", 0, 1)
        await asking.nodes[THERE].asked()
        asking.time = 0.2
        asking.nodes[THERE].answer(
            answer({("mine", "t", 0): 0, ("mine", "t", 1): ErrorCode.TRANSACTION_ABORTABLE})
        )
        await turns()
    found = samples(verification_families(asking.verifier))
    assert found["barnabas_transaction_verification_failures_total"] == 1
    assert found['barnabas_transaction_verification_seconds_bucket{le="0.1"}'] == 0
    assert found['barnabas_transaction_verification_seconds_bucket{le="0.25"}'] == 1
    assert found["barnabas_transaction_verification_seconds_sum"] == 0.2


def test_a_transaction_that_nobody_ends_is_told_as_late(replicas: ReplicaManager) -> None:
    for topic in ("t", "u", "v"):
        lead(replicas, topic)
    append(replicas.led("t", 0), in_transaction(7), in_transaction(8), marker(7), a_batch())
    append(replicas.led("u", 0), in_transaction(7), marker(7))
    append(replicas.led("v", 0), in_transaction(7))
    follow(replicas, "v")

    def told(now_ms: int) -> tuple[float, ...]:
        return tuple(samples(producer_families(replicas, now_ms, TIMEOUT_MS)).values())

    assert told(NOW_MS + TIMEOUT_MS + LATE_MS) == (4, 1, 0)
    assert told(NOW_MS + TIMEOUT_MS + LATE_MS + 1) == (4, 1, 1)

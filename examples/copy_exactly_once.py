"""Copies orders into bills, each exactly once, whatever crashes: transactions.

    python examples/produce.py 30
    python examples/copy_exactly_once.py 30

The new records and "I have read so far" are one transaction: readers of committed records see both
or neither. Kill the program anywhere and start it again: no order is billed twice, none is missed.
"""

from __future__ import annotations

import asyncio
import os
import sys

from barnabas.client import (
    AbortableTransactionError,
    Admin,
    Batch,
    CommitFailed,
    Consumer,
    NewTopic,
    Producer,
)

BOOTSTRAP = os.environ.get("BARNABAS_BOOTSTRAP", "localhost:9092")
SOURCE, TARGET, GROUP = "orders", "bills", "billing"

READING = {
    "auto.offset.reset": "earliest",
    # Offsets are committed with the transaction, or not at all.
    "enable.auto.commit": False,
    # Whoever wrote the orders may have used transactions, too: see no aborted ones.
    "isolation.level": "read_committed",
}


async def main(count: int) -> None:
    """Copy `count` orders."""
    async with Admin.of(BOOTSTRAP) as admin:
        topics = [NewTopic(name=name, partitions=3) for name in (SOURCE, TARGET)]
        await admin.create_topics(topics, exist_ok=True)
    async with (
        Consumer(BOOTSTRAP, SOURCE, group=GROUP, config=READING) as consumer,
        # The same id after a restart: what the program left open before is ended at once.
        Producer(BOOTSTRAP, transactional_id=f"{GROUP}-1") as producer,
    ):
        copied = 0
        async for batch in consumer.batches(max_records=100):
            try:
                await copy(batch, consumer, producer)
            except (AbortableTransactionError, CommitFailed):
                await consumer.seek_to_committed()  # aborted as a whole: read the same again
                continue
            copied += len(batch)
            if copied >= count:
                break
    print(f"copied {copied} orders to {TARGET}")


async def copy(batch: Batch, consumer: Consumer, producer: Producer) -> None:
    """One transaction; an exception in the block aborts it."""
    async with producer.transaction() as transaction:
        for record in batch:
            transaction.send_soon(TARGET, b"bill for " + record.value, key=record.key)
        await transaction.send_offsets(consumer)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 30))

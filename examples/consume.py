"""Reads orders as a member of a group: the second half of a pair, produce.py is the other.

    python examples/consume.py [HOW MANY]

Start it twice and the two share the partitions. Stop it and start it again: the group remembers
how far it was. `barnabas groups lag kitchen` says how far behind it is.
"""

from __future__ import annotations

import os
import sys

from barnabas.client import SyncConsumer

BOOTSTRAP = os.environ.get("BARNABAS_BOOTSTRAP", "localhost:9092")
TOPIC, GROUP = "orders", "kitchen"

SETTINGS = {
    # Where a group begins that has committed nothing yet: at the first record, not at the next one.
    "auto.offset.reset": "earliest",
}


def main(count: int) -> None:
    """Read `count` orders or a few more, then leave the group."""
    done = 0
    with SyncConsumer(BOOTSTRAP, TOPIC, group=GROUP, config=SETTINGS) as consumer:
        for batch in consumer.batches(max_records=10):
            # What the block has done is committed when it ends well. An exception in it commits
            # nothing: the same orders come again, to this program or to another of the group.
            with batch:
                for record in batch:
                    guest = (record.key or b"").decode()
                    print(f"{guest}: {record.value.decode()}")
            done += len(batch)
            if done >= count:
                break
    print(f"read {done} orders")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)

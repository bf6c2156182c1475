"""One node, one record, one commit: what a compiled installation has to do without a compiler.

Prints how the node called its build, and the offset that is committed in the end.
"""

from __future__ import annotations

import re
import shutil

from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.testing import Cluster


def main() -> None:
    assert shutil.which("cc") is None
    assert shutil.which("gcc") is None
    with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        producer.produce("t", b"a record")
        assert producer.flush(60) == 0
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False}
        )
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        (committed,) = consumer.committed([TopicPartition("t", 0)], timeout=60)
        consumer.close()
        (build,) = re.findall(r"starting version=\S+ build=(.+)", cluster.node(1).log.read_text())
    print(f"{build} {committed.offset}")  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()

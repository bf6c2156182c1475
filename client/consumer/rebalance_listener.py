"""What an application is told when partitions come and go. Source: KIP-429 (lost partitions)."""

from __future__ import annotations

from barnabas.client.topology import TopicPartition

PartitionSet = frozenset[TopicPartition]


class RebalanceListener:
    """Told when partitions come and go; inherit and override what is wanted.

    Awaited by the rebalance, which goes on when it returns: to take longer than
    ``max.poll.interval.ms`` may cost the place in the group. An exception ends the consumer, unless
    it is a KafkaError that may pass: then the rebalance is tried again. Partitions whose
    ``on_assigned`` raised it were not taken: they come with the next one, and in a classic group
    ``on_revoked`` does not name them before.
    """

    async def on_revoked(self, topic_partitions: PartitionSet) -> None:
        """These are about to be given up; their offsets can still be committed."""

    async def on_assigned(self, topic_partitions: PartitionSet) -> None:
        """These came; seek here to begin elsewhere than at the committed offset."""

    async def on_lost(self, topic_partitions: PartitionSet) -> None:
        """These are somebody else's already: the group went on without us."""

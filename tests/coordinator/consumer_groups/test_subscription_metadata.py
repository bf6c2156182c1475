"""The hash of a group's topics. Source: docs/spec/consumer-groups.md §6, C62."""

from __future__ import annotations

import pytest

from barnabas.coordinator.consumer_groups.assignor import SubscribedTopic
from barnabas.coordinator.consumer_groups.subscription_metadata import metadata_hash

ORDERS = SubscribedTopic(bytes(range(16)), "orders", 6)
BILLS = SubscribedTopic(bytes(16), "bills", 1)


def test_the_hash_does_not_depend_on_the_order_of_topics() -> None:
    assert metadata_hash([ORDERS, BILLS]) == metadata_hash([BILLS, ORDERS])
    assert metadata_hash([]) == 0


@pytest.mark.parametrize(
    "other",
    [
        ORDERS._replace(topic_id=bytes(16)),
        ORDERS._replace(name="order"),
        ORDERS._replace(partitions=7),
    ],
)
def test_another_id_name_or_number_of_partitions_is_another_hash(other: SubscribedTopic) -> None:
    """C64: a topic that was deleted and made anew has another id."""
    assert metadata_hash([other, BILLS]) != metadata_hash([ORDERS, BILLS])


def test_the_hash_is_the_same_in_every_release() -> None:
    """It lies in the log: a change of it would rebalance every group at the first upgrade."""
    assert metadata_hash([ORDERS, BILLS]) == -3376448424119033366

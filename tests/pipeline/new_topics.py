"""Topics that every node knows before anybody asks for them."""

from __future__ import annotations

from tests.harness.confluent_client import Confluent
from tests.harness.deployments import await_leaders_at
from tests.harness.raw_connection import addresses_of


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Create it, and wait for all nodes: the creator hears of it earlier than they do.

    Our client asks any of them, and takes a topic for a typing error after less than a second.
    """
    Confluent().create_topic(bootstrap, topic, partitions)
    await_leaders_at(addresses_of(bootstrap), topic, partitions)

"""Where nodes listen for each other, as they registered it."""

from __future__ import annotations

from barnabas.protocol.zookeeper.znodes import BROKER_IDS, BrokerRegistration, broker_path

from .znodes import session


def internal_ports(hosts: str) -> dict[int, int]:
    """The port of every registered node's INTERNAL listener."""
    with session(hosts) as client:
        return {
            int(name): BrokerRegistration.from_json(
                client.get(broker_path(int(name)))[0]
            ).endpoints["INTERNAL"][1]
            for name in client.get_children(BROKER_IDS)
        }

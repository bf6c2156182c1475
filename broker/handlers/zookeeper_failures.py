"""What clients are answered when ZooKeeper does not do what a node asks of it.

Source: docs/spec/cluster.md §1.10; docs/spec/security.md §5 (S70).
"""

from __future__ import annotations

from barnabas.client.zookeeper.interface import NoAuth, ZooKeeperError
from barnabas.protocol.errors import ErrorCode, Refused


def unreachable(error: ZooKeeperError) -> Refused:
    """What is answered when ZooKeeper does not do what it is asked.

    Asking again helps, unless ZooKeeper does not let this node: -1 then, as in Kafka.
    """
    if isinstance(error, NoAuth):
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    return Refused(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper: {error!r}")

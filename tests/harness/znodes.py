"""A look into ZooKeeper beside the servers: one session, one question."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

START_S = 60.0
SESSION_S = 60.0
"""As long as the server allows: what a test has created is not to go while it works."""


@contextmanager
def session(hosts: str) -> Iterator[KazooClient]:
    """A kazoo client that is connected, and gone afterwards."""
    client = KazooClient(hosts, timeout=SESSION_S)
    client.start(timeout=START_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def registered_brokers(hosts: str) -> list[str]:
    """The ids of the brokers that hold a session."""
    with session(hosts) as client:
        try:
            return list(client.get_children("/brokers/ids"))
        except NoNodeError:
            return []


def data(hosts: str, path: str) -> bytes | None:
    """What a znode holds; None when there is none."""
    with session(hosts) as client:
        try:
            return bytes(client.get(path)[0])
        except NoNodeError:
            return None


def czxid(hosts: str, path: str) -> int:
    """When a znode that is there was created: ZooKeeper's number of that write."""
    with session(hosts) as client:
        return int(client.get(path)[1].czxid)

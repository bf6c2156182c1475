"""Which ZooKeeper a command talks to, where it goes there itself.

Source: docs/spec/users.md §2.1.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from barnabas.client.tls.contexts import ClientTls
from barnabas.client.zookeeper.interface import ConnectionLost, ZooKeeper, ZooKeeperError
from barnabas.protocol.settings import ConfigError

from .cluster_options import DESCRIPTION, command_config, described_address
from .failure import Failure, Misuse

T = TypeVar("T")

VARIABLE: Final = "BARNABAS_ZOOKEEPER"


def add_zookeeper_option(parser: argparse.ArgumentParser) -> None:
    """``--zookeeper``."""
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT,...[/PATH]",
        help=f"its servers (default: of the cluster named, or ${VARIABLE})",
    )


def zookeeper_of(chosen: argparse.Namespace) -> str:
    """The servers that were typed, of the cluster named, of the file, or of the environment.

    Raises Misuse.
    """
    found = chosen.zookeeper
    if not found and chosen.cluster is not None:
        found = described_address(chosen.cluster / DESCRIPTION, "zookeeper")
    found = found or command_config(chosen).zookeeper or os.environ.get(VARIABLE)
    if not found:
        raise Misuse(f"which ZooKeeper? say --zookeeper, --cluster or set {VARIABLE}")
    return str(found)


async def with_zookeeper(
    servers: str, chosen: argparse.Namespace, work: Callable[[ZooKeeper], Awaitable[T]]
) -> T:
    """Run ``work`` with a session, in TLS where the file of ``--command-config`` asks for it.

    Raises Failure for what ZooKeeper refuses.
    """
    from barnabas.client.zookeeper.kazoo_session import connect

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # what failed is told once, by us
    settings = command_config(chosen).zookeeper_tls.tls
    tls = None if settings is None else ClientTls(settings)
    try:
        session = await connect(servers, connection_timeout_ms=chosen.timeout_ms, tls=tls)
    except ConfigError as error:
        raise Failure(error.listing()) from None
    except (ConnectionLost, ZooKeeperError) as error:  # ZooKeeperError: it is no address
        raise Failure(str(error)) from None
    try:
        return await work(session)
    except ZooKeeperError as error:
        raise Failure(f"zookeeper: {error!r}") from None
    finally:
        await session.close()


def ask_zookeeper(chosen: argparse.Namespace, work: Callable[[ZooKeeper], Awaitable[T]]) -> T:
    """As :func:`with_zookeeper`, for a command that talks to nobody else."""
    return asyncio.run(with_zookeeper(zookeeper_of(chosen), chosen, work))

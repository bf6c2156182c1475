"""Which ZooKeeper a command talks to, where it goes there itself.

Source: docs/spec/users.md §2.1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.client.tls.contexts import ClientTls
from barnabas.client.zookeeper.interface import ConnectionLost, ZooKeeperError
from barnabas.protocol.settings import ConfigError

from .cluster_options import DESCRIPTION, command_config, described_address
from .failure import Failure, Misuse

if TYPE_CHECKING:
    from barnabas.client.zookeeper.kazoo_session import KazooSession

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
    servers: str, chosen: argparse.Namespace, work: Callable[[KazooSession], Awaitable[T]]
) -> T:
    """Run ``work`` with a session, as whom and how the file of ``--command-config`` says.

    Raises Failure for what ZooKeeper refuses.
    """
    with _quiet():
        session = await _connected(servers, chosen)
        try:
            return await work(session)
        except ZooKeeperError as error:
            raise Failure(f"zookeeper: {error!r}") from None
        finally:
            await session.close()


async def _connected(servers: str, chosen: argparse.Namespace) -> KazooSession:
    from barnabas.client.zookeeper.kazoo_session import connect

    properties = command_config(chosen)
    tls = properties.zookeeper_tls.tls
    try:
        return await connect(
            servers,
            connection_timeout_ms=chosen.timeout_ms,
            tls=None if tls is None else ClientTls(tls),
            identity=properties.zookeeper_login.identity(),
        )
    except ConfigError as error:
        raise Failure(error.listing()) from None
    except (ConnectionLost, ZooKeeperError) as error:  # ZooKeeperError: it is no address
        raise Failure(str(error)) from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What failed is told once, by the command."""
    loggers = [logging.getLogger(name) for name in ("kazoo", "barnabas.client.zookeeper")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def ask_zookeeper(chosen: argparse.Namespace, work: Callable[[KazooSession], Awaitable[T]]) -> T:
    """As :func:`with_zookeeper`, for a command that talks to nobody else."""
    return asyncio.run(with_zookeeper(zookeeper_of(chosen), chosen, work))

"""Which cluster a command talks to, and how long it tries: the options every such verb has.

Source: docs/spec/users.md §2.1.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import stat
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from barnabas.client.admin.admin import Admin
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import Unreachable, parse_addresses
from barnabas.client.errors import ClosedByPeer, TlsFailed
from barnabas.client.properties_file import ClientProperties, read_client_properties
from barnabas.protocol.settings import ConfigError

from .failure import Failure, Misuse
from .input_files import document_of, malformed
from .number_arguments import whole_number
from .output import note

T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
_VARIABLE: Final = "BARNABAS_BOOTSTRAP"
_TIMEOUT_MS: Final = 10_000
_OPTION: Final = "--bootstrap"
DESCRIPTION: Final = "cluster.json"
"""The file in which a running cluster says where it is."""
_WHAT: Final = "description of a cluster"
CONFIG_VARIABLE: Final = "BARNABAS_COMMAND_CONFIG"
"""Names the file that ``--command-config`` would."""
_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """``--bootstrap``, ``--cluster``, ``--command-config``, ``--timeout-ms`` and ``--json``."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help=f"brokers to ask first (default: ${_VARIABLE}, or {DEFAULT_BOOTSTRAP})",
    )
    where.add_argument(
        "--cluster",
        type=Path,
        metavar="DIR",
        help="the data directory of a running `barnabas up`, which knows its brokers",
    )
    add_config_option(parser)
    parser.add_argument(
        "--timeout-ms",
        type=whole_number(1),
        default=_TIMEOUT_MS,
        metavar="MS",
        help=f"give up after this (default: {_TIMEOUT_MS})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def add_config_option(parser: argparse.ArgumentParser) -> None:
    """``--command-config``: TLS and logins, in a file, since others see what is typed."""
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="client.properties with security.protocol, sasl.* and ssl.* as Kafka's tools have "
        f"them (default: ${CONFIG_VARIABLE})",
    )


def command_config(chosen: argparse.Namespace) -> ClientProperties:
    """What the file says that was typed, or that the environment names; raises Failure."""
    if not hasattr(chosen, "client_properties"):  # asked by several, read and warned of once
        named = chosen.command_config or os.environ.get(CONFIG_VARIABLE)
        chosen.client_properties = _read(Path(named)) if named else ClientProperties()
    found: ClientProperties = chosen.client_properties
    return found


def _read(path: Path) -> ClientProperties:
    try:
        found = read_client_properties(path)
    except ConfigError as error:
        raise Failure(error.listing()) from None
    if found.holds_secret and path.stat().st_mode & _OF_OTHERS:
        note(f"barnabas: {path} holds a password, and others may read it: chmod 600 {path}")
    return found


def administer(
    chosen: argparse.Namespace,
    work: Callable[[Admin], Awaitable[T]],
    *,
    client_id: str = "barnabas-console",
) -> T:
    """Run ``work`` with an administrator of the cluster that was chosen.

    ``client_id`` is what the cluster is told of us. Raises Failure for an address that leads
    nowhere, Misuse for what is none, KafkaError for what the cluster refuses.
    """
    return reach(chosen, lambda bootstrap, config: _with_admin(bootstrap, config, work), client_id)


async def _with_admin(
    bootstrap: str, config: ClientConfig, work: Callable[[Admin], Awaitable[T]]
) -> T:
    async with Admin.of(bootstrap, config) as admin:
        return await work(admin)


def reach(
    chosen: argparse.Namespace,
    work: Callable[[str, ClientConfig], Coroutine[Any, Any, T]],
    client_id: str = "barnabas-console",
) -> T:
    """Run ``work`` with the addresses of the cluster that was chosen, and how to speak to it.

    Raises as :func:`administer` does.
    """
    properties = command_config(chosen)
    config = dataclasses.replace(
        properties.client,
        client_id=client_id,
        api_timeout_ms=chosen.timeout_ms,
        connect_timeout_ms=chosen.timeout_ms,
        request_timeout_ms=chosen.timeout_ms,
    )
    bootstrap, came_from = bootstrap_of(chosen, properties)
    try:
        parse_addresses(bootstrap)
    except ValueError as error:
        kind = Misuse if came_from == _OPTION else Failure
        raise kind(f"{came_from}: {error}") from None
    try:
        return asyncio.run(work(bootstrap, config))
    except Unreachable as error:
        raise Failure(f"{error.message} ({advice(error, config)})") from None
    except ConfigError as error:  # a store that is not there, or cannot be read
        raise Failure(error.listing()) from None


def advice(error: Unreachable, config: ClientConfig) -> str:
    """What to look at when no broker could be spoken to."""
    if any(isinstance(failure, TlsFailed) for failure in error.failures):
        return "look at security.protocol and ssl.* of --command-config"
    if any(isinstance(failure, ClosedByPeer) for failure in error.failures):
        if config.speaks_tls:  # in TLS 1.3 it looks at us when the handshake is over for us
            return "does it ask for a certificate? look at ssl.keystore.* of --command-config"
        return "does it expect TLS, or a login? security.protocol of --command-config says so"
    return "`barnabas up` starts a cluster"


def bootstrap_of(chosen: argparse.Namespace, properties: ClientProperties) -> tuple[str, str]:
    """The addresses to ask first, and where they come from.

    As typed, of the cluster named, of the file of ``--command-config``, of the environment; an
    empty variable counts as none.
    """
    if chosen.bootstrap is not None:
        return str(chosen.bootstrap), _OPTION
    if chosen.cluster is not None:
        path = chosen.cluster / DESCRIPTION
        return described_address(path, "bootstrap"), str(path)
    if properties.bootstrap is not None:  # its password is for nobody else
        return properties.bootstrap, "bootstrap.servers"
    if found := os.environ.get(_VARIABLE):
        return found, f"${_VARIABLE}"
    return DEFAULT_BOOTSTRAP, "the default"


def described_address(path: Path, part: str) -> str:
    """``bootstrap`` or ``zookeeper`` of a ``cluster.json``; raises Failure."""
    try:
        return str(document_of(path, _WHAT)[part])
    except FileNotFoundError:
        raise Failure(f"{path} is not there: no cluster runs in this directory") from None
    except (KeyError, TypeError) as error:
        raise malformed(path, _WHAT, error) from None

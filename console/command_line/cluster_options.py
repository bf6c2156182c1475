"""Which cluster a command talks to, and how long it tries: the options every such verb has.

Source: docs/spec/users.md §2.1.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from barnabas.client.admin.admin import Admin
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import Unreachable, parse_addresses

from .failure import Failure, Misuse
from .input_files import document_of, malformed
from .number_arguments import whole_number

T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
_VARIABLE: Final = "BARNABAS_BOOTSTRAP"
_TIMEOUT_MS: Final = 10_000
_OPTION: Final = "--bootstrap"
DESCRIPTION: Final = "cluster.json"
"""The file in which a running cluster says where it is."""
_WHAT: Final = "description of a cluster"


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """``--bootstrap``, ``--cluster``, ``--timeout-ms`` and ``--json``."""
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
    parser.add_argument(
        "--timeout-ms",
        type=whole_number(1),
        default=_TIMEOUT_MS,
        metavar="MS",
        help=f"give up after this (default: {_TIMEOUT_MS})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


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
    config = ClientConfig(
        client_id=client_id,
        api_timeout_ms=chosen.timeout_ms,
        connect_timeout_ms=chosen.timeout_ms,
        request_timeout_ms=chosen.timeout_ms,
    )
    bootstrap, came_from = bootstrap_of(chosen)
    try:
        parse_addresses(bootstrap)
    except ValueError as error:
        kind = Misuse if came_from == _OPTION else Failure
        raise kind(f"{came_from}: {error}") from None
    try:
        return asyncio.run(work(bootstrap, config))
    except Unreachable as error:
        raise Failure(f"{error.message} (`barnabas up` starts a cluster)") from None


def bootstrap_of(chosen: argparse.Namespace) -> tuple[str, str]:
    """The addresses to ask first, and where they come from.

    As typed, of the cluster named, of the environment; an empty variable counts as none.
    """
    if chosen.bootstrap is not None:
        return str(chosen.bootstrap), _OPTION
    if chosen.cluster is not None:
        path = chosen.cluster / DESCRIPTION
        return described_address(path, "bootstrap"), str(path)
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

"""Which cluster a command talks to, and how long it tries: the options every such verb has.

Source: the brief of `barnabas topics` and `barnabas groups` in design.md section 5.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from barnabas.client.admin import Admin
from barnabas.client.cluster import Unreachable
from barnabas.client.config import ClientConfig

from .failure import Failure
from .numbers import whole_number

T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
_VARIABLE: Final = "BARNABAS_BOOTSTRAP"
_TIMEOUT_MS: Final = 10_000


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """``--bootstrap``, ``--cluster``, ``--timeout-ms`` and ``--json``."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--bootstrap",
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
    nowhere, KafkaError for what the cluster refuses.
    """
    config = ClientConfig(
        client_id=client_id,
        api_timeout_ms=chosen.timeout_ms,
        connect_timeout_ms=chosen.timeout_ms,
        request_timeout_ms=chosen.timeout_ms,
    )
    try:
        admin = Admin.of(bootstrap_of(chosen), config)
    except ValueError as error:
        raise Failure(str(error)) from None

    async def run() -> T:
        async with admin:
            return await work(admin)

    try:
        return asyncio.run(run())
    except Unreachable as error:
        raise Failure(f"{error.message} (`barnabas up` starts a cluster)") from None


def bootstrap_of(chosen: argparse.Namespace) -> str:
    """The addresses to ask first: as typed, of the cluster named, of the environment."""
    if chosen.bootstrap:
        return str(chosen.bootstrap)
    if chosen.cluster is not None:
        return _bootstrap_in(chosen.cluster / "cluster.json")
    return os.environ.get(_VARIABLE, DEFAULT_BOOTSTRAP)


def _bootstrap_in(description: Path) -> str:
    try:
        return str(json.loads(description.read_text())["bootstrap"])
    except FileNotFoundError:
        raise Failure(f"{description} is not there: no cluster runs in this directory") from None
    except (OSError, ValueError, KeyError) as error:
        raise Failure(f"{description} cannot be read: {error}") from None

"""``barnabas console``: the web console, for Barnabas and for any Kafka.

Source: docs/spec/console.md §0 and §3; described in docs/web-console.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import parse_addresses
from barnabas.client.tls.contexts import client_context
from barnabas.console.command_line.cluster_options import (
    add_cluster_options,
    bootstrap_of,
    command_config,
)
from barnabas.console.command_line.failure import Failure, Misuse
from barnabas.console.command_line.input_files import text_of
from barnabas.console.command_line.number_arguments import PORT_MAX
from barnabas.protocol.settings import ConfigError

if TYPE_CHECKING:
    from barnabas.console.web.console_settings import ConsoleSettings

NOT_INSTALLED: Final = "the web console needs more: pip install 'barnabas[web]'"
_LISTEN: Final = "127.0.0.1:9080"
_SILENT: Final = ("uvicorn.error", "asyncio")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where it listens, who may log in, and which cluster it is about."""
    parser.add_argument(
        "--listen", default=_LISTEN, metavar="HOST:PORT",
        help=f"where browsers find it; port 0: a free one (default: {_LISTEN})",
    )  # fmt: skip
    parser.add_argument(
        "--auth", choices=("token", "sasl", "none"), default="token",
        help="token: printed once, as a link; sasl: name and password of a user of the cluster, "
        "with whose rights everything is done; none: everybody, on the loopback only",
    )  # fmt: skip
    parser.add_argument("--read-only", action="store_true", help="change nothing, for anybody")
    parser.add_argument(
        "--allowed-host", action="append", default=[], metavar="NAME",
        help="a host name that browsers use for it; may be repeated",
    )  # fmt: skip
    parser.add_argument("--tls-cert", type=Path, metavar="PEM", help="speak TLS to browsers")
    parser.add_argument("--tls-key", type=Path, metavar="PEM", help="the key of --tls-cert")
    parser.add_argument(
        "--behind-proxy", action="store_true", help="a proxy in front of it speaks TLS"
    )
    parser.add_argument(
        "--published-on-loopback", action="store_true",
        help="in a container: its port is published on the loopback of its host and nowhere else, "
        "so that nobody listens in",
    )  # fmt: skip
    _add_files(parser)
    parser.add_argument("--announce-fd", type=int, help=argparse.SUPPRESS)
    """Of `barnabas up`: where the URL is written, token included, and nowhere else."""
    add_cluster_options(parser)


def _add_files(parser: argparse.ArgumentParser) -> None:
    """What it reads at its start, and where it writes."""
    parser.add_argument(
        "--undo-directory", type=Path, default=Path(), metavar="DIR",
        help="where undo files are written before a change (default: here)",
    )  # fmt: skip
    parser.add_argument(
        "--audit-file", type=Path, metavar="FILE",
        help="write every change down here, as lines of JSON, before it is asked for",
    )  # fmt: skip
    parser.add_argument(
        "--mask", type=Path, metavar="FILE",
        help="what nobody is shown of the records of some topics, in TOML",
    )  # fmt: skip
    parser.add_argument(
        "--schema-registry", metavar="URL",
        help="where the schemas of framed records are (Avro, Protobuf, JSON Schema)",
    )  # fmt: skip
    parser.add_argument(
        "--decoders", type=Path, metavar="FILE",
        help="by which schema or decoder the records of some topics are read, in TOML",
    )  # fmt: skip
    parser.add_argument(
        "--reports", type=Path, metavar="DIR", help="where Spark jobs write reports, to be shown"
    )
    parser.add_argument(
        "--roles", type=Path, metavar="FILE",
        help="who may look, read records, change groups and topics, or everything, in TOML",
    )  # fmt: skip
    parser.add_argument(
        "--status-token-file", type=Path, metavar="FILE",
        help="the nodes' metrics.token, for their status from another machine",
    )  # fmt: skip
    parser.add_argument(
        "--metrics-token-file", type=Path, metavar="FILE",
        help="what collectors on other machines show as bearer token for /metrics",
    )  # fmt: skip


def run(chosen: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; raises Failure, Misuse."""
    try:
        from barnabas.console.web.server import serve
    except ModuleNotFoundError as missing:
        raise Failure(f"{NOT_INSTALLED} ({missing})") from None
    settings = _settings(chosen)
    properties = command_config(chosen)
    bootstrap, came_from = bootstrap_of(chosen, properties)
    try:
        parse_addresses(bootstrap)
    except ValueError as error:
        raise Misuse(f"{came_from}: {error}") from None
    config = dataclasses.replace(
        properties.client,
        client_id="barnabas-web-console",
        api_timeout_ms=chosen.timeout_ms,
        connect_timeout_ms=chosen.timeout_ms,
        request_timeout_ms=chosen.timeout_ms,
    )
    _check_connection(bootstrap, config, settings)
    for name in _SILENT:
        logging.getLogger(name).setLevel(logging.WARNING)

    def announce(url: str) -> None:
        if chosen.announce_fd is not None:
            with os.fdopen(chosen.announce_fd, "w") as pipe:
                pipe.write(url + "\n")
        elif chosen.json:
            print(json.dumps({"url": url, "bootstrap": bootstrap}), flush=True)
        else:
            print(f"Console of {bootstrap}: {url}", flush=True)

    serve(bootstrap, config, settings, announce)
    return 0


def _check_connection(bootstrap: str, config: ClientConfig, settings: ConsoleSettings) -> None:
    """Raises Failure for stores that cannot be read, or half of a login; connects to nobody."""
    if settings.auth == "sasl":  # users bring the rest
        config = dataclasses.replace(
            config, sasl_username="", sasl_password="", sasl_jaas_config=None,
            security_protocol="SASL_SSL" if config.speaks_tls else "SASL_PLAINTEXT",
        )  # fmt: skip
    try:
        Admin.of(bootstrap, config)
        if config.speaks_tls:
            client_context(config)
    except ConfigError as error:
        raise Failure(error.listing()) from None


def _settings(chosen: argparse.Namespace) -> ConsoleSettings:
    from barnabas.console.web.console_settings import ConsoleSettings
    from barnabas.console.web.records.masking import Masks, read_masks
    from barnabas.console.web.roles import read_roles
    from barnabas.console.web.schemas.decoders import read_decoders

    host, port = listen_address(chosen.listen)
    settings = ConsoleSettings(
        host=host,
        port=port,
        auth=chosen.auth,
        is_read_only=chosen.read_only,
        names=tuple(chosen.allowed_host),
        certificate=chosen.tls_cert,
        key=chosen.tls_key,
        is_behind_proxy=chosen.behind_proxy,
        is_published_on_loopback=chosen.published_on_loopback,
        undo_directory=chosen.undo_directory,
        audit_file=chosen.audit_file,
        status_token=_token_of(chosen.status_token_file),
        metrics_token=_token_of(chosen.metrics_token_file),
        reports=chosen.reports,
        roles=None if chosen.roles is None else read_roles(chosen.roles),
        decoders=read_decoders(chosen.decoders, chosen.schema_registry),
        masks=Masks() if chosen.mask is None else read_masks(chosen.mask),
    )
    settings.check()
    return settings


def _token_of(path: Path | None) -> str | None:
    return None if path is None else text_of(path).strip()


def listen_address(text: str) -> tuple[str, int]:
    """``HOST:PORT``, ``[v6]:PORT`` or ``:PORT``; raises Misuse."""
    host, colon, port = text.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(PORT_MAX))
    if not colon or not is_number or int(port) > PORT_MAX:
        raise Misuse(f"--listen {text}: must read HOST:PORT")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)

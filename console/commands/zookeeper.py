"""``barnabas zookeeper``: one ZooKeeper server in the foreground, for containers and servers.

Java replaces this process, so that signals and exit codes are ZooKeeper's own. Settings come from
options, then from the variables of the ZooKeeper images in use. Source: docs/spec/pipeline.md §6.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.console.command_line.failure import Misuse
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.development.embedded_zookeeper import make_directory
from barnabas.console.development.java import find_jars, find_java, java_environment, java_text
from barnabas.console.development.zookeeper_command import java_command, log_flag

_FLAGS: Final = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dzookeeper.jmx.log4j.disable=true",
)
_VARIABLES: Final = {
    "data": ("ZOO_DATA_DIR", "ZOOKEEPER_DATA_DIR"),
    "port": ("ZOO_PORT", "ZOOKEEPER_CLIENT_PORT"),
    "address": ("ZOO_CLIENT_ADDRESS", "ZOOKEEPER_CLIENT_ADDRESS"),
    "tick": ("ZOO_TICK_TIME", "ZOOKEEPER_TICK_TIME"),
    "id": ("ZOO_MY_ID", "ZOOKEEPER_SERVER_ID"),
    "servers": ("ZOO_SERVERS", "ZOOKEEPER_SERVERS"),
}
"""Where each option's value may also come from: the official image's name, Confluent's name."""
DEFAULT_PORT: Final = 2181
_DEFAULT_TICK_MS: Final = 2000
_PORTS_OF_A_SERVER: Final = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the data live, where clients connect, and who the other servers are."""
    known = from_environment(os.environ)
    parser.epilog = "Variables stand for options that are not typed."
    parser.add_argument(
        "--data",
        type=Path,
        default=known.get("data"),
        metavar="DIR",
        help="directory of snapshots and transactions (ZOO_DATA_DIR)",
    )
    parser.add_argument(
        "--port",
        type=whole_number(1, 65535),
        default=known.get("port", str(DEFAULT_PORT)),
        help="clients' port (ZOO_PORT, ZOOKEEPER_CLIENT_PORT; default 2181)",
    )
    parser.add_argument(
        "--address",
        default=known.get("address", "127.0.0.1"),
        help="address to listen on (ZOO_CLIENT_ADDRESS; default 127.0.0.1)",
    )
    parser.add_argument(
        "--tick",
        type=whole_number(10, 60_000),
        default=known.get("tick", str(_DEFAULT_TICK_MS)),
        metavar="MS",
        help="a session lasts 2 to 20 of them (ZOO_TICK_TIME; default 2000)",
    )
    parser.add_argument(
        "--id",
        type=whole_number(1, 255),
        default=known.get("id"),
        help="this server's number among --servers (ZOO_MY_ID)",
    )
    parser.add_argument(
        "--servers",
        default=known.get("servers", ""),
        metavar="LIST",
        help="an ensemble: server.1=host:2888:3888 ... or host:2888:3888;... (ZOO_SERVERS)",
    )


def run(chosen: argparse.Namespace) -> int:
    """Become ZooKeeper; returns only by raising Misuse, Failure or OSError."""
    if chosen.data is None:
        raise Misuse("say where ZooKeeper keeps its data: --data DIR or ZOO_DATA_DIR")
    servers = parse_servers(chosen.servers)
    if servers and chosen.id is None:
        raise Misuse("an ensemble needs this server's number: --id N or ZOO_MY_ID")
    if servers and chosen.id not in servers:
        raise Misuse(f"--id {chosen.id} is none of --servers {chosen.servers}")
    java, jars = find_java(), find_jars(with_log=True)
    data: Path = chosen.data.absolute()
    make_directory(data)
    if chosen.id is not None:
        (data / "myid").write_text(f"{chosen.id}\n")
    settings = data / "zoo.cfg"
    settings.write_text(configuration(chosen, data, servers), encoding="utf-8")
    argv = java_command(java, [*_FLAGS, log_flag(data, "warn")], jars, settings)
    os.execve(argv[0], argv, java_environment())  # noqa: S606 - no shell is wanted


def configuration(chosen: argparse.Namespace, data: Path, servers: Mapping[int, str]) -> str:
    """The text of zoo.cfg."""
    lines = [
        f"tickTime={chosen.tick}",
        f"dataDir={java_text(str(data))}",
        f"clientPort={chosen.port}",
        f"clientPortAddress={chosen.address}",
        "admin.enableServer=false",
        "maxClientCnxns=0",
        "4lw.commands.whitelist=ruok,srvr",
        "autopurge.snapRetainCount=3",
        "autopurge.purgeInterval=1",
    ]
    if servers:
        lines += ["initLimit=10", "syncLimit=5"]
        lines += [f"server.{number}={address}" for number, address in sorted(servers.items())]
    return "\n".join(lines) + "\n"


def parse_servers(text: str) -> dict[int, str]:
    """The members of an ensemble by number; raises Misuse for what is neither notation."""
    if "=" not in text:
        addresses = [word.strip() for word in text.split(";") if word.strip()]
        for address in addresses:
            _check_address(address)
        return dict(enumerate(addresses, start=1))
    servers = {}
    for word in text.replace(",", " ").split():
        name, equals, address = word.partition("=")
        number = name.removeprefix("server.")
        if not equals or not number.isdecimal():
            raise Misuse(f"--servers: {word} must read server.N=host:port:port")
        servers[int(number)] = address.partition(";")[0]
        _check_address(servers[int(number)])
    return servers


def _check_address(address: str) -> None:
    """Raise Misuse for what ZooKeeper would end for, seconds later and in a stack trace."""
    _, *ports = address.rsplit(":", 2)
    if len(ports) != _PORTS_OF_A_SERVER or not all(port.isdecimal() for port in ports):
        raise Misuse(f"--servers: {address} must read host:port:port")


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The options that variables give. An address of Kubernetes is none: a service named ``zoo``
    leaves ``ZOO_PORT=tcp://10.0.0.1:2181`` in every container.
    """
    found: dict[str, str] = {}
    for option, variables in _VARIABLES.items():
        for variable in variables:
            value = environment.get(variable)
            if value and "://" not in value:
                found.setdefault(option, value)
    return found

"""``barnabas zookeeper``: one ZooKeeper server in the foreground, and who owns a cluster's znodes.

Java replaces this process, so that signals and exit codes are ZooKeeper's own. Settings come from
options, then from the variables of the ZooKeeper images in use. Source: docs/spec/pipeline.md §6.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from barnabas.console.command_line.failure import Misuse
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.development.embedded_zookeeper import make_directory
from barnabas.console.development.fetch_jars import provide_jars
from barnabas.console.development.java import find_java, java_environment, java_text
from barnabas.console.development.zookeeper_command import java_command, log_flag
from barnabas.console.development.zookeeper_security import ZooKeeperSecurity
from barnabas.console.security.znode_commands import add_znode_commands, run_znode_command

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
    "jaas": ("ZOO_JAAS_FILE", "ZOOKEEPER_JAAS_FILE"),
    "require_login": ("ZOO_REQUIRE_LOGIN", "ZOOKEEPER_REQUIRE_LOGIN"),
    "keystore": ("ZOO_TLS_KEYSTORE", "ZOOKEEPER_TLS_KEYSTORE"),
    "truststore": ("ZOO_TLS_TRUSTSTORE", "ZOOKEEPER_TLS_TRUSTSTORE"),
    "client_auth": ("ZOO_TLS_CLIENT_AUTH", "ZOOKEEPER_TLS_CLIENT_AUTH"),
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
    _add_security_arguments(parser, known)
    add_znode_commands(parser.add_subparsers(dest="command", metavar="COMMAND", required=False))


def _add_security_arguments(parser: argparse.ArgumentParser, known: Mapping[str, str]) -> None:
    parser.add_argument(
        "--jaas",
        type=Path,
        default=known.get("jaas"),
        metavar="FILE",
        help="Java's file with a section Server: who may log in by SASL (ZOO_JAAS_FILE)",
    )
    parser.add_argument(
        "--require-login",
        action="store_true",
        default=known.get("require_login", "").lower() in ("true", "1", "yes"),
        help="do nothing for sessions that have not logged in (ZOO_REQUIRE_LOGIN=true)",
    )
    parser.add_argument(
        "--tls-keystore",
        dest="keystore",
        type=Path,
        default=known.get("keystore"),
        metavar="PEM",
        help="key and certificates: clients and other servers are spoken to in TLS alone "
        "(ZOO_TLS_KEYSTORE)",
    )
    parser.add_argument(
        "--tls-truststore",
        dest="truststore",
        type=Path,
        default=known.get("truststore"),
        metavar="PEM",
        help="authorities of clients and of other servers (ZOO_TLS_TRUSTSTORE)",
    )
    parser.add_argument(
        "--tls-client-auth",
        dest="client_auth",
        choices=("none", "want", "need"),
        default=known.get("client_auth", "none"),
        help="whether clients show certificates (ZOO_TLS_CLIENT_AUTH; default none)",
    )


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; without a command become ZooKeeper, and return only by raising."""
    return _become_zookeeper(chosen) if chosen.command is None else run_znode_command(chosen)


def _become_zookeeper(chosen: argparse.Namespace) -> NoReturn:
    """Raises Misuse, Failure or OSError."""
    if chosen.data is None:
        raise Misuse("say where ZooKeeper keeps its data: --data DIR or ZOO_DATA_DIR")
    servers = parse_servers(chosen.servers)
    if servers and chosen.id is None:
        raise Misuse("an ensemble needs this server's number: --id N or ZOO_MY_ID")
    if servers and chosen.id not in servers:
        raise Misuse(f"--id {chosen.id} is none of --servers {chosen.servers}")
    security = _security(chosen)
    java, jars = find_java(), provide_jars(with_log=True, with_netty=security.needs_netty)
    data: Path = chosen.data.absolute()
    make_directory(data)
    if chosen.id is not None:
        (data / "myid").write_text(f"{chosen.id}\n")
    settings = data / "zoo.cfg"
    settings.write_text(configuration(chosen, data, servers), encoding="utf-8")
    flags = [*_FLAGS, *security.flags(), log_flag(data, "warn")]
    argv = java_command(java, flags, jars, settings)
    os.execve(argv[0], argv, java_environment())  # noqa: S606 - no shell is wanted


def configuration(chosen: argparse.Namespace, data: Path, servers: Mapping[int, str]) -> str:
    """The text of zoo.cfg."""
    lines = [
        f"tickTime={chosen.tick}",
        f"dataDir={java_text(str(data))}",
        *_security(chosen).address_lines(int(chosen.port), chosen.address),
        *_security(chosen).lines(is_ensemble=bool(servers)),
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


def _security(chosen: argparse.Namespace) -> ZooKeeperSecurity:
    """Raises Misuse for what does not go together."""
    return ZooKeeperSecurity(
        jaas=_absolute(chosen.jaas),
        requires_login=chosen.require_login,
        keystore=_absolute(chosen.keystore),
        truststore=_absolute(chosen.truststore),
        client_auth=chosen.client_auth,
    )


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()


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

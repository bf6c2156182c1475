"""``barnabas security init``, ``users`` and ``renew``: a secured cluster from nothing.

Source: docs/spec/security.md §9.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Final

from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.console.command_line.cluster_options import CONFIG_VARIABLE, add_config_option
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.command_line.number_arguments import PORT_MAX, whole_number
from barnabas.console.command_line.output import note
from barnabas.console.command_line.zookeeper_options import (
    add_zookeeper_option,
    ask_zookeeper,
)

from .cluster_plan import ClusterPlan, check_servers, planned_nodes, planned_users
from .secret_files import FileSet

_NODES: Final = 3
_NODES_MAX: Final = 100
_PORT: Final = 9093
_ZOOKEEPER: Final = "127.0.0.1:2281/kafka"
_DAYS: Final = 365
_TIMEOUT_MS: Final = 30_000


def add_init_commands(commands: Any) -> None:
    """Each with its options."""
    _add_init(commands)
    _add_users(commands)
    _add_renew(commands)


def _add_init(commands: Any) -> None:
    init = add_command(
        commands, "init", "make authority, certificates, users, secrets and settings of a cluster"
    )
    init.add_argument("directory", type=Path, metavar="DIR", help="what is there stays as it is")
    init.add_argument(
        "--nodes",
        type=whole_number(1, _NODES_MAX),
        default=_NODES,
        metavar="N",
        help=f"on this machine, where no --host is named (default: {_NODES})",
    )
    init.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOST",
        help="of one node, as clients dial it; repeated for each node",
    )
    init.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        help="another name or address that certificates are to hold; may be repeated",
    )
    init.add_argument(
        "--port",
        type=whole_number(1, PORT_MAX),
        default=_PORT,
        metavar="PORT",
        help=f"of clients; nodes speak to each other on the next one (default: {_PORT})",
    )
    init.add_argument(
        "--zookeeper",
        default=_ZOOKEEPER,
        metavar="HOST:PORT,.../PATH",
        help=f"its servers and the cluster's path (default: {_ZOOKEEPER})",
    )
    init.add_argument(
        "--user",
        action="append",
        default=[],
        metavar="NAME",
        help="a user beside admin; may be repeated. What he may do: barnabas acls",
    )
    init.add_argument(
        "--client-certificates",
        action="store_true",
        help="users may show a certificate in place of a password: one for each, and a listener "
        "of each node that asks for it, on the port after that of nodes",
    )
    _add_days(init)
    _add_places(init)


def _add_places(init: argparse.ArgumentParser) -> None:
    """Where what is made will be, and what clients dial there."""
    init.add_argument(
        "--installed-at",
        type=Path,
        metavar="PATH",
        help="where each machine has its own folder of these (default: where it is made)",
    )
    init.add_argument(
        "--clients-at",
        type=Path,
        metavar="PATH",
        help="where the folders of clients will be (default: where they are made)",
    )
    init.add_argument(
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help="what clients dial (default: the nodes)",
    )


def _add_users(commands: Any) -> None:
    users = add_command(commands, "users", "give ZooKeeper the users of such a folder")
    users.add_argument("directory", type=Path, metavar="DIR")
    add_zookeeper_option(users)
    users.set_defaults(cluster=None)
    add_config_option(users)
    users.add_argument(
        "--timeout-ms",
        type=whole_number(1),
        default=_TIMEOUT_MS,
        metavar="MS",
        help=f"give up after this (default: {_TIMEOUT_MS})",
    )


def _add_renew(commands: Any) -> None:
    renew = add_command(commands, "renew", "replace certificates of such a folder by new ones")
    renew.add_argument("directory", type=Path, metavar="DIR")
    renew.add_argument(
        "--node", action="append", default=[], metavar="NAME",
        help="these alone: node-1, zookeeper, clients/alice",
    )  # fmt: skip
    _add_days(renew)


def _add_days(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days",
        type=whole_number(1, 825),
        default=_DAYS,
        metavar="N",
        help=f"how long certificates hold (default: {_DAYS})",
    )


def run_init(chosen: argparse.Namespace) -> int:
    """Make what is missing, and say what to do with it."""
    from .cluster_files import write_cluster  # cryptography takes a tenth of a second

    plan = ClusterPlan(
        nodes=planned_nodes(
            chosen.host, chosen.nodes, chosen.port, with_certificates=chosen.client_certificates
        ),
        zookeeper=check_servers(chosen.zookeeper),
        users=planned_users(chosen.user),
        names=chosen.name,
        days=chosen.days,
        installed_at=chosen.installed_at,
        clients_at=chosen.clients_at,
        given_bootstrap=chosen.bootstrap,
        with_certificates=chosen.client_certificates,
    )
    _tell(chosen.directory, plan, write_cluster(chosen.directory, plan))
    return 0


def run_users(chosen: argparse.Namespace) -> int:
    """Set the passwords that ZooKeeper does not have."""
    from .cluster_files import TOOL_FILE
    from .scram_users import passwords_of, set_users

    passwords = passwords_of(chosen.directory)
    own = chosen.directory / TOOL_FILE
    if chosen.command_config is None and CONFIG_VARIABLE not in os.environ and own.exists():
        chosen.command_config = own

    async def work(zookeeper: ZooKeeper) -> list[str]:
        return await set_users(zookeeper, passwords)

    changed = ask_zookeeper(chosen, work)
    for name in changed:
        print(f"set SCRAM-SHA-512 of user {name}")
    if not changed:
        print(f"ZooKeeper has all {len(passwords)} users")
    return 0


def run_renew(chosen: argparse.Namespace) -> int:
    """Replace keystores; nodes look for other files once a minute, ZooKeeper by itself."""
    from .renewal import renew

    for path in renew(chosen.directory, chosen.node, chosen.days):
        print(f"replaced {path}")
    return 0


def _tell(directory: Path, plan: ClusterPlan, files: FileSet) -> None:
    print(f"made {len(files.made)} files in {directory}, kept {len(files.kept)}")
    if not files.made:
        return
    folder = directory / "zookeeper"
    port = plan.zookeeper.partition("/")[0].split(",")[0].rpartition(":")[2]
    note(
        f"""\
1. ZooKeeper:  barnabas zookeeper --data {folder}/data --port {port} --jaas {folder}/jaas.conf \\
                 --require-login --tls-keystore {folder}/keystore.pem \\
                 --tls-truststore {folder}/truststore.pem
2. users:      barnabas security users {directory}
3. nodes:      barnabas broker {directory}/nodes/node-1/server.properties, and so on
4. rights:     barnabas acls add --command-config {directory}/clients/admin/client.properties ...
Keep {directory}/authority off the machines of the cluster: whoever has its key is any of them."""
    )

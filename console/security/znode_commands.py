"""``barnabas zookeeper secure`` and ``open``: to whom the cluster's znodes belong.

Source: docs/spec/security.md §5 (S67).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from barnabas.console.command_line.cluster_options import add_config_option, command_config
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.command_line.failure import Failure
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.output import note, print_json, print_table
from barnabas.console.command_line.zookeeper_options import (
    add_zookeeper_option,
    ask_zookeeper,
)

from .znode_owners import ROOT, WalkResult, owners, walk

COMMANDS: Final[Mapping[str, str]] = {
    "secure": "give the cluster's znodes to the nodes alone, as zookeeper.set.acl does new ones",
    "open": "give the cluster's znodes back to everybody, before zookeeper.set.acl is switched off",
}
_TIMEOUT_MS: Final = 30_000


def add_znode_commands(commands: Any) -> None:
    """Both take the same words."""
    for name, meaning in COMMANDS.items():
        sub = add_command(commands, name, meaning)
        add_zookeeper_option(sub)
        sub.add_argument("--cluster", type=Path, metavar="DIR", help="of a running `barnabas up`")
        add_config_option(sub)
        when = sub.add_mutually_exclusive_group()
        when.add_argument("--execute", action="store_true", help="do it; without this only show it")
        when.add_argument("--dry-run", action="store_true", help="only show it, as is the default")
        sub.add_argument(
            "--keep-root",
            action="store_true",
            help="leave the root of the cluster's tree as it is, where others live in it, too",
        )
        sub.add_argument(
            "--timeout-ms",
            type=whole_number(1),
            default=_TIMEOUT_MS,
            metavar="MS",
            help=f"give up without a connection after this (default: {_TIMEOUT_MS})",
        )
        sub.add_argument("--json", action="store_true", help="print JSON for programs")


def run_znode_command(chosen: argparse.Namespace) -> int:
    """Show what is to be changed, or change it; 1 where ZooKeeper refuses some of it."""
    properties = command_config(chosen)
    is_open = chosen.command == "open"
    has_certificate = properties.zookeeper_tls.keystore_location is not None
    mine = owners(properties.zookeeper_login.identity(), has_certificate=has_certificate)
    if not mine:
        raise Failure(
            "nobody would own the znodes: say who the nodes are, by --command-config with "
            "zookeeper.jaas.config, zookeeper.jaas.file or zookeeper.ssl.keystore.location"
        )
    result = ask_zookeeper(
        chosen,
        lambda session: walk(
            session,
            is_open=is_open,
            mine=mine,
            with_root=not chosen.keep_root,
            execute=chosen.execute,
        ),
    )
    _tell(chosen, result)
    if not is_open and chosen.keep_root:
        note(
            f"{ROOT} stays as it is: whoever may change it deletes and creates what is below it, "
            "/controller for one. Give the cluster a path in zookeeper.connect"
        )
    return 1 if result.refused else 0


def _tell(chosen: argparse.Namespace, result: WalkResult) -> None:
    if chosen.json:
        print_json(
            {
                "executed": chosen.execute,
                "right": result.right,
                "changed": result.changed,
                "refused": result.refused,
            }
        )
        return
    tops = Counter(map(_top, result.changed)), Counter(map(_top, result.refused))
    names = sorted(tops[0].keys() | tops[1].keys())
    if names:
        heading = "CHANGED" if chosen.execute else "TO CHANGE"
        print_table(
            ("ZNODES AT OR BELOW", heading, "REFUSED"),
            [(name, tops[0][name], tops[1][name]) for name in names],
        )
    elif not result.right:
        print("nothing is there yet")
    else:
        print(f"all {result.right} znodes are as they should be")
    if result.changed and not chosen.execute:
        print("dry run: nothing was changed; --execute does it")
    if result.refused:
        note(
            f"ZooKeeper refused {len(result.refused)} znodes, {result.refused[0]} first: they are "
            "another identity's"
        )


def _top(path: str) -> str:
    return "/" + path.split("/")[1]

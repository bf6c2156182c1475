"""``barnabas users``: who may log in by SCRAM, in ZooKeeper itself, so that no node is needed.

The first user of a cluster can only be made so. Passwords come from standard input, never from the
command line, which others on the machine can read. Source: docs/spec/security.md §2 (S32, S34).
"""

from __future__ import annotations

import argparse
import getpass
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from barnabas.broker.security.credential_cache import CredentialCache, Credentials
from barnabas.broker.security.scram_credentials import ScramCredentials
from barnabas.broker.settings.password_hash import PasswordHash
from barnabas.client.zookeeper.interface import NoNode, ZooKeeper
from barnabas.console.command_line.cluster_options import add_config_option
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.command_line.failure import Failure
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.output import print_json, print_table
from barnabas.console.command_line.zookeeper_options import add_zookeeper_option, ask_zookeeper
from barnabas.protocol.errors import Refused
from barnabas.protocol.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    ScramCredential,
    credential,
    salt_text,
    salted_password,
)

_TIMEOUT_MS: Final = 10_000
_SALT_BYTES: Final = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing that can be done to users."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    give = add_command(commands, "set", "give a user a password, which is read from standard input")
    give.add_argument("name")
    give.add_argument(
        "--iterations",
        type=whole_number(ITERATIONS_MIN, ITERATIONS_MAX),
        default=ITERATIONS_MIN,
        metavar="N",
        help=f"how costly the password is to guess (default: {ITERATIONS_MIN})",
    )
    listing = add_command(commands, "list", "show who may log in, and by which mechanism")
    listing.add_argument("--json", action="store_true", help="print JSON for programs")
    remove = add_command(commands, "remove", "take passwords away")
    remove.add_argument("names", nargs="+", metavar="NAME")
    for sub in (give, remove):
        sub.add_argument(
            "--mechanism",
            action="append",
            choices=tuple(MECHANISMS),
            help="may be repeated (default: all)",
        )
    for sub in (give, listing, remove):
        add_zookeeper_option(sub)
        sub.add_argument("--cluster", type=Path, metavar="DIR", help="of a running `barnabas up`")
        add_config_option(sub)
        sub.add_argument(
            "--timeout-ms",
            type=whole_number(1),
            default=_TIMEOUT_MS,
            metavar="MS",
            help=f"give up after this (default: {_TIMEOUT_MS})",
        )
    add_command(
        commands, "hash", "print what may stand for a password that PLAIN asks for, in a file"
    )


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; failures are raised."""
    _COMMANDS[chosen.command](chosen)
    return 0


def _set(chosen: argparse.Namespace) -> None:
    password = _password()
    changes = {
        mechanism: _credential(mechanism, password, chosen.iterations)
        for mechanism in chosen.mechanism or MECHANISMS
    }
    ask_zookeeper(chosen, lambda zookeeper: _changed(zookeeper, chosen.name, changes))
    print(f"set {', '.join(changes)} of user {chosen.name}")


def _list(chosen: argparse.Namespace) -> None:
    users = ask_zookeeper(chosen, _users)
    if chosen.json:
        print_json(
            [
                {
                    "name": name,
                    "mechanisms": {
                        mechanism: one.iterations for mechanism, one in credentials.items()
                    },
                }
                for name, credentials in sorted(users.items())
            ]
        )
    elif users:
        rows = [
            (name, mechanism, one.iterations)
            for name, credentials in sorted(users.items())
            for mechanism, one in sorted(credentials.items())
        ]
        print_table(("USER", "MECHANISM", "ITERATIONS"), rows)


def _remove(chosen: argparse.Namespace) -> None:
    async def removed(zookeeper: ZooKeeper) -> None:
        users = await _users(zookeeper)
        missing = [name for name in chosen.names if name not in users]
        if missing:
            raise Failure(f"there is no user {missing[0]}")
        for name in dict.fromkeys(chosen.names):
            mechanisms = chosen.mechanism or users[name]
            await _changed(zookeeper, name, dict.fromkeys(mechanisms))
            print(f"removed {', '.join(mechanisms)} of user {name}")

    ask_zookeeper(chosen, removed)


def _hash(_: argparse.Namespace) -> None:
    print(PasswordHash.of(_password(), secrets.token_bytes(_SALT_BYTES)))


async def _users(zookeeper: ZooKeeper) -> Mapping[str, Credentials]:
    cache = CredentialCache(zookeeper)
    try:
        await cache.load()
    except NoNode:
        return {}  # nobody has written there yet
    return cache.users


async def _changed(
    zookeeper: ZooKeeper, name: str, changes: Mapping[str, ScramCredential | None]
) -> None:
    try:
        await ScramCredentials(zookeeper).change(name, changes)
    except Refused as refusal:
        raise Failure(f"user {name}: {refusal.message}") from None


def _credential(mechanism: str, password: str, iterations: int) -> ScramCredential:
    made = MECHANISMS[mechanism]
    salt = salt_text(secrets.token_bytes(_SALT_BYTES + 1))
    return credential(made, salted_password(made, password, salt, iterations), salt, iterations)


def _password() -> str:
    """Typed twice at a terminal, else the first line of what comes."""
    if sys.stdin.isatty():
        password = getpass.getpass("password: ")
        if getpass.getpass("once more: ") != password:
            raise Failure("the passwords differ")
    else:
        password = sys.stdin.readline().removesuffix("\n").removesuffix("\r")
    if not password:
        raise Failure("no password: write it to standard input")
    return password


_COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace], None]]] = {
    "set": _set,
    "list": _list,
    "remove": _remove,
    "hash": _hash,
}

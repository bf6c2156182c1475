"""The ``barnabas`` command: its verbs, and what a failure looks like.

Each verb is a file of commands/ with ``add_arguments`` and ``run``, imported when it is typed:
a command for people should answer at once. Source: docs/spec/cluster.md §5;
docs/spec/users.md §2.1.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Final

from barnabas.client.errors import KafkaError
from barnabas.client.os_errors import describe_os_error
from barnabas.console.command_line.command_parser import CommandParser, add_command
from barnabas.console.command_line.failure import Failure, Misuse
from barnabas.console.command_line.output import note

_VERBS: Final = {
    "up": "start a development cluster: ZooKeeper and nodes, gone with Ctrl-C",
    "console": "serve the web console of a cluster",
    "broker": "run one broker from a server.properties file",
    "coordinator": "run one coordinator from a server.properties file",
    "zookeeper": "run one ZooKeeper server in the foreground; secure or open the cluster's znodes",
    "topics": "create, list, describe, alter and delete topics",
    "produce": "send records: each word, or each line of standard input",
    "consume": "print records, as a reader or as a member of a group",
    "groups": "show consumer groups and their lag; reset, copy and delete their offsets",
    "nodes": "show what nodes have; empty one before it is stopped, fill it again",
    "partitions": "show leaders and copies; move them, elect leaders",
    "coordinators": "show which node keeps which groups and transactions; move them",
    "offsets": "move offsets of groups between ZooKeeper and Kafka",
    "quotas": "show and set quotas of users, client ids and addresses",
    "users": "set, list and remove the passwords of users, in ZooKeeper",
    "tokens": "make, list, renew and end delegation tokens",
    "acls": "list, add and remove access control lists",
    "security": "make the files of a secured cluster; say what a node's settings leave open",
    "transactions": "show transactions; find those that hang, and abort them",
    "spark": "run a job on Spark: lag over time, audits, migrations, resets",
    "log": "print or verify the files of a log, with no node running",
    "completion": "print a script that completes these commands in a shell",
}
_FAILED: Final = 1
_INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command: 0 when done, 1 for a failure told in a line, 2 for wrong usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    try:
        code = _run(words)
        _flush()
    except BrokenPipeError:  # nobody reads: be quiet
        _write_nowhere()
        return _FAILED
    except OSError as refusal:  # a directory that cannot be written, a file that is none
        note(f"barnabas: {describe_os_error(refusal)}")
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _run(words: Sequence[str]) -> int:
    try:
        chosen = _parser(words[:1]).parse_args(words)
        return _ended(chosen)
    except SystemExit as usage:
        return int(usage.code or 0)
    except (Failure, KafkaError) as failure:
        note(f"barnabas: {failure}")
        return _FAILED


def _ended(chosen: argparse.Namespace) -> int:
    """Run what was typed; raises SystemExit for wrong usage that only the command sees."""
    try:
        code: int = chosen.run(chosen)
    except Misuse as misuse:
        parser: CommandParser = chosen.parser
        parser.error(str(misuse))
    return code


def _prepare_streams() -> None:
    """Make every stream usable: a name may not fit into the terminal's encoding, or none be there.

    A closed one (``>&-``) is None. What a terminal cannot show is escaped rather than an error.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123 - as long as we live
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush() -> None:
    """Write what is left; what cannot be written is told once, not again when Python ends."""
    try:
        sys.stdout.flush()
    except OSError:
        _write_nowhere()
        raise


def _write_nowhere() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def whole_parser() -> CommandParser:
    """The parser of every command at once: for who wants to know what can be typed."""
    return _parser(list(_VERBS))


def _parser(typed: Sequence[str]) -> CommandParser:
    parser = CommandParser(
        prog="barnabas",
        description="A Kafka-compatible cluster in Python.",
        epilog="barnabas COMMAND --help tells about one command.",
    )
    parser.add_argument("--version", action=_Version)
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True)
    for verb, meaning in _VERBS.items():
        sub = add_command(verbs, verb, meaning)
        if verb in typed:
            module = importlib.import_module(f"barnabas.console.commands.{verb}")
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    return parser


class _Version(argparse.Action):
    """Prints the version of the installed package, and whether its hot modules are compiled.

    Both are looked up only then.
    """

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and the build")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version
        from platform import python_version

        from barnabas.broker.runtime.compiled_modules import kind_of_build

        print(f"barnabas {version('barnabas')} ({kind_of_build()}, Python {python_version()})")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())

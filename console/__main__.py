"""The ``barnabas`` command: its verbs, and what a failure looks like.

Each verb lives in a file of its own, with ``add_arguments`` and ``run``, imported when it is typed:
a command for people should answer at once. Source: design.md section 5; users.md section 2.1.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

from barnabas.client.errors import KafkaError

from .failure import Failure

_VERBS: Final = {
    "up": "start a development cluster: ZooKeeper and nodes, gone with Ctrl-C",
    "broker": "run one broker from a server.properties file",
    "coordinator": "run one coordinator from a server.properties file",
    "zookeeper": "run one ZooKeeper server in the foreground",
    "topics": "create, list, describe and delete topics",
    "groups": "list and describe consumer groups, with their lag",
    "offsets": "move offsets of groups between ZooKeeper and Kafka",
    "spark": "run a job on Spark: lag over time, audits, migrations, resets",
    "log": "print or verify the files of a log, with no node running",
}
_FAILED: Final = 1
_INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command: 0 when done, 1 for a failure told in a line, 2 for wrong usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        chosen = _parser(words[:1]).parse_args(words)
        code: int = chosen.run(chosen)
        sys.stdout.flush()
    except SystemExit as usage:
        return int(usage.code or 0)
    except (Failure, KafkaError) as failure:
        print(f"barnabas: {failure}", file=sys.stderr)
        return _FAILED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads: be quiet
        return _FAILED
    except OSError as refusal:  # a directory that cannot be written, a file that is none
        print(f"barnabas: {refusal}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _parser(typed: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barnabas",
        description="A Kafka-compatible cluster in Python.",
        epilog="barnabas COMMAND --help tells about one command.",
    )
    parser.add_argument("--version", action=_Version)
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True)
    for verb, meaning in _VERBS.items():
        sub = verbs.add_parser(verb, help=meaning, description=f"{meaning.capitalize()}.")
        if verb in typed:
            module = importlib.import_module(f"barnabas.console.{verb}")
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    return parser


class _Version(argparse.Action):
    """Prints the version of the installed package, which is looked up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"barnabas {version('barnabas')}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())

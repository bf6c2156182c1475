"""``barnabas log``: look into the files of a log, and verify them, with no node running.

Nothing is ever written. Source: users.md section 2.1 (kafka-dump-log); log.md section 3.4.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .log_decoders import offsets, plain, transactions
from .log_dump import INT32_MAX, Dump, DumpOptions
from .log_verify import Report, verify
from .numbers import whole_number
from .output import print_json

_DECODERS: Final = {"offsets": offsets, "transactions": transactions}
_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "-checkpoint")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``dump`` with the flags of kafka-dump-log, and ``verify``."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    dump = commands.add_parser("dump", help="print what is in the files, as kafka-dump-log does")
    dump.add_argument("paths", nargs="+", type=Path, metavar="FILE", help="or a directory of them")
    dump.add_argument("--deep-iteration", action="store_true", help="every record")
    dump.add_argument("--print-data-log", action="store_true", help="with keys and payloads")
    how = dump.add_mutually_exclusive_group()
    how.add_argument(
        "--offsets-decoder",
        dest="decoder",
        action="store_const",
        const="offsets",
        help="keys and payloads are those of __consumer_offsets",
    )
    how.add_argument(
        "--transaction-log-decoder",
        dest="decoder",
        action="store_const",
        const="transactions",
        help="keys and payloads are those of __transaction_state",
    )
    how.add_argument(
        "--offsets-formatter",
        action="store_true",
        help="only [group,topic,partition]::[OffsetMetadata[...],...] for each committed offset",
    )
    dump.add_argument("--skip-record-metadata", action="store_true", help="only keys and payloads")
    indexes = dump.add_mutually_exclusive_group()
    indexes.add_argument("--index-sanity-check", action="store_true", help="print no index entries")
    indexes.add_argument("--verify-index-only", action="store_true", help="only compare with logs")
    dump.add_argument("--max-bytes", type=whole_number(0), default=INT32_MAX, metavar="N")
    dump.add_argument("--json", action="store_true", help="one JSON document a line")
    check = commands.add_parser("verify", help="check files, partition or log directories")
    check.add_argument("paths", nargs="+", type=Path, metavar="FILE", help="or a directory")
    check.add_argument("--json", action="store_true", help="print JSON")


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; 1 when something is wrong with a file."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # payloads are not for every terminal
    return _dump(chosen) if chosen.command == "dump" else _verify(chosen)


def _dump(chosen: argparse.Namespace) -> int:
    has_decoder = chosen.decoder is not None
    run = Dump(
        DumpOptions(
            print_data_log=chosen.print_data_log or has_decoder,
            deep_iteration=chosen.deep_iteration,
            skip_record_metadata=chosen.skip_record_metadata,
            index_sanity_check=chosen.index_sanity_check,
            verify_index_only=chosen.verify_index_only,
            offsets_formatter=chosen.offsets_formatter,
            as_json=chosen.json,
            max_bytes=chosen.max_bytes,
            decoder=_DECODERS.get(chosen.decoder, plain),
        )
    )
    for path in chosen.paths:
        for each in _files(path):
            run.dump(each)
    return run.finish()


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or what can be dumped in a directory and in the directories there."""
    if not path.is_dir():
        yield path
        return
    for each in sorted(path.iterdir()):
        if each.is_dir():
            yield from (one for one in sorted(each.iterdir()) if one.name.endswith(_SUFFIXES))
        elif each.name.endswith(_SUFFIXES):
            yield each


def _verify(chosen: argparse.Namespace) -> int:
    report = Report()
    for path in chosen.paths:
        verify(path, report)
    if chosen.json:
        print_json(report.as_json())
    else:
        for problem in report.problems:
            print(problem)
        print(report.summary)
    return 1 if report.problems else 0

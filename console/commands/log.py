"""``barnabas log``: look into the files of a log, verify and repair them, with no node running.

Only ``repair --execute`` writes anything. Source: docs/spec/users.md §2.1
(kafka-dump-log); docs/spec/log.md §3.4.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from barnabas.broker.storage.storage_error import StorageError
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.command_line.failure import Failure
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.output import print_json
from barnabas.console.log.dump import INT32_MAX, Dump, DumpOptions
from barnabas.console.log.record_decoders import offsets, plain, transactions
from barnabas.console.log.repair import Repair, repairs
from barnabas.console.log.verify import VerifyReport, verify

_DECODERS: Final = {"offsets": offsets, "transactions": transactions}
_SUMMARIES: Final = {
    (False, False): "nothing is damaged",
    (False, True): "nothing is damaged",
    (True, False): "dry run: nothing was changed; --execute does it, while the node is stopped",
    (True, True): "done; the damaged bytes are kept in files named .damaged",
}
"""By whether there is damage, and whether it was repaired."""
_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "-checkpoint")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``dump`` with the flags of kafka-dump-log, and ``verify``."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    dump = add_command(commands, "dump", "print what is in the files, as kafka-dump-log does")
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
    check = add_command(commands, "verify", "check files, partition or log directories")
    check.add_argument("paths", nargs="+", type=Path, metavar="FILE", help="or a directory")
    check.add_argument("--json", action="store_true", help="print JSON")
    mend = add_command(
        commands, "repair", "put right what is damaged and no other replica has, or give it up"
    )
    mend.add_argument(
        "paths", nargs="+", type=Path, metavar="DIR", help="of a partition, or an entry of log.dirs"
    )
    mend.add_argument("--execute", action="store_true", help="do it; the node must be stopped")
    mend.add_argument("--json", action="store_true", help="print JSON")


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; 1 when something is wrong with a file."""
    return {"dump": _dump, "verify": _verify, "repair": _repair}[chosen.command](chosen)


def _repair(chosen: argparse.Namespace) -> int:
    """1 when something is damaged and was left as it is."""
    found: list[Repair] = []
    for path in chosen.paths:
        try:
            found += repairs(path, is_executed=chosen.execute)
        except StorageError as error:
            raise Failure(str(error)) from error
    if chosen.json:
        print_json({"executed": chosen.execute, "repairs": [repair.as_json() for repair in found]})
    else:
        for repair in found:
            print("\n".join(repair.lines))
        print(_SUMMARIES[bool(found), chosen.execute])
    return 1 if found and not chosen.execute else 0


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
        files = list(_files(path))
        if not files:
            run.complain(f"{path} holds no file of a log")
        for file in files:
            run.dump(file)
    return run.finish()


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or what can be dumped in a directory and in the directories there."""
    if not path.is_dir():
        yield path
        return
    for entry in sorted(path.iterdir()):
        if entry.is_dir():
            yield from (one for one in sorted(entry.iterdir()) if _is_of_a_log(one))
        elif _is_of_a_log(entry):
            yield entry


def _is_of_a_log(path: Path) -> bool:
    """Named as a file of a log is; a log of events, ``node.log``, is not."""
    suffix = next(
        (known_suffix for known_suffix in _SUFFIXES if path.name.endswith(known_suffix)), None
    )
    return suffix is not None and (
        suffix == "-checkpoint" or path.name.removesuffix(suffix).isdecimal()
    )


def _verify(chosen: argparse.Namespace) -> int:
    report = VerifyReport()
    for path in chosen.paths:
        verify(path, report)
    if chosen.json:
        print_json(report.as_json())
    else:
        for problem in report.problems:
            print(problem)
        print(report.summary)
    return 1 if report.problems else 0

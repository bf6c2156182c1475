"""``barnabas security``: what a node's settings leave open, and a secured cluster from nothing.

``check`` reads what the node would read, the file and the KAFKA_ variables, and talks to nobody.
Source: docs/spec/security.md §9.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from barnabas.broker.security.file_review import file_review
from barnabas.broker.settings.node_config import load
from barnabas.broker.settings.properties import (
    from_assignments,
    from_environment,
    line_numbers,
    parse_properties,
    variables,
)
from barnabas.broker.settings.security_review import Finding, Grade, settings_review
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.command_line.failure import Failure, Misuse
from barnabas.console.command_line.input_files import text_of
from barnabas.console.command_line.output import note, print_json
from barnabas.console.security.init_commands import (
    add_init_commands,
    run_init,
    run_renew,
    run_users,
)
from barnabas.protocol.settings import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing that can be done."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    check = add_command(commands, "check", "say what a node's settings leave open")
    check.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="settings of a node (default: KAFKA_... variables alone)",
    )
    check.add_argument(
        "--set",
        dest="settings",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting that wins over the file; may be repeated",
    )
    check.add_argument("--json", action="store_true", help="print JSON for programs")
    add_init_commands(commands)


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; failures are raised."""
    return _COMMANDS[chosen.command](chosen)


def _check(chosen: argparse.Namespace) -> int:
    """0 when nothing is open, else 1: also where a node would refuse the settings."""
    text = "" if chosen.file is None else text_of(chosen.file)
    places = _places(chosen.file, text)
    try:
        typed = from_assignments(chosen.settings)
    except ConfigError as error:
        raise Misuse(str(error)) from None
    values = parse_properties(text) | from_environment(os.environ) | typed
    if not values:
        raise Misuse("which settings? name a FILE, or set KAFKA_... variables")
    try:
        config = load(values, variables(os.environ))
        found = [*settings_review(config), *file_review(config, datetime.now(UTC), chosen.file)]
    except ConfigError as error:
        return _told_as_refused(chosen, error)
    if chosen.json:
        print_json({"refused": [], "findings": [_as_json(one, places) for one in found]})
    else:
        _print(found, places, str(chosen.file or "environment"))
    return 1 if found else 0


def _told_as_refused(chosen: argparse.Namespace, error: ConfigError) -> int:
    """What no node would start with is open to nobody, and yet not what was meant."""
    if not chosen.json:
        raise Failure(f"a node refuses these settings: {error.listing()}")
    print_json({"refused": list(error.problems), "findings": []})
    return 1


def _print(found: Sequence[Finding], places: Mapping[str, str], where: str) -> None:
    for finding in sorted(found, key=lambda one: one.grade is not Grade.OPEN):
        place = _place(finding, places) or where
        name = f"{finding.name}: " if finding.name else ""
        print(f"{place}: {finding.grade.value}: {name}{finding.reason}")
        print(f"    {finding.remedy}")
    grades = [finding.grade for finding in found]
    if found:
        sys.stdout.flush()
        counts = (f"{grades.count(grade)} {grade.value}" for grade in Grade if grade in grades)
        note(f"found: {', '.join(counts)}")
    else:
        print("nothing is open")


def _as_json(finding: Finding, places: Mapping[str, str]) -> dict[str, object]:
    return {
        "grade": finding.grade.value,
        "setting": finding.name,
        "place": _place(finding, places),
        "reason": finding.reason,
        "remedy": finding.remedy,
    }


def _place(finding: Finding, places: Mapping[str, str]) -> str | None:
    """Where the line stands that is to be changed, else the one that it is about."""
    changed = finding.remedy.partition("=")[0]
    return places.get(changed) or places.get(finding.name)


def _places(path: Path | None, text: str) -> dict[str, str]:
    """Of each name that is given: the file and its line, or the variable, which wins."""
    lines = {name: f"{path}:{number}" for name, number in line_numbers(text).items()}
    return lines | variables(os.environ)


_COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "check": _check,
    "init": run_init,
    "users": run_users,
    "renew": run_renew,
}

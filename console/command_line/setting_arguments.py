"""Settings on the command line: ``--config NAME=VALUE`` and ``--delete-config NAME``, and tables.

Source: docs/spec/users.md §2.1 (kafka-topics, kafka-configs).
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping, Sequence

from barnabas.client.admin.descriptions import SettingDescription

from .failure import Failure, Misuse
from .output import print_table, shown


def add_config_option(parser: argparse.ArgumentParser) -> None:
    """Settings that are wanted."""
    parser.add_argument("--config", action="append", type=setting, default=[], metavar="NAME=VALUE")


def add_alter_options(parser: argparse.ArgumentParser) -> None:
    """Settings that are wanted, and those that are taken back."""
    add_config_option(parser)
    parser.add_argument(
        "--delete-config", action="append", default=[], metavar="NAME", help="back to the default"
    )


def setting(text: str) -> tuple[str, str]:
    """``name=value`` as a pair."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text} must read NAME=VALUE")
    return name, value


def check_alter_options(chosen: argparse.Namespace) -> None:
    """Raises Misuse for a setting that is both wanted and taken back; names each only once."""
    chosen.delete_config = list(dict.fromkeys(chosen.delete_config))
    both = sorted({name for name, _ in chosen.config} & set(chosen.delete_config))
    if both:
        raise Misuse(f"{both[0]}: say --config or --delete-config, not both")


def not_set(
    settings: Sequence[SettingDescription], names: Sequence[str], source: str, what: str
) -> list[str]:
    """Which of ``names`` have no value of this ``source``. Raises Failure for what is no setting.

    ``what`` names the resource in words, such as "a topic". The broker takes back what is not
    there without a word, Kafka's too; Kafka's tool asks first.
    """
    known = {description.name: description for description in settings}
    for name in names:
        if name not in known:
            like = difflib.get_close_matches(name, known, 1)
            hint = f", did you mean {like[0]}?" if like else ""
            raise Failure(f"{name} is no setting of {what}{hint}")
    return [name for name in names if known[name].source != source]


def print_settings(column: str, settings: Mapping[str, Sequence[SettingDescription]]) -> None:
    """One line a setting; ``column`` is what their owners are."""
    rows = [
        (
            owner,
            description.name,
            shown("(hidden)" if description.is_sensitive else description.value),
            description.source,
        )
        for owner, found in settings.items()
        for description in found
    ]
    print_table((column, "SETTING", "VALUE", "SOURCE"), rows)

"""Topic filters of the classic consumer: a whitelist or blacklist as a regular expression.

Source: docs/spec/coordinator.md §6.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from barnabas.protocol.names import is_internal

WHITE_LIST: Final = "white_list"
BLACK_LIST: Final = "black_list"


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Which topics a consumer wants, from a registration in ZooKeeper or made by the two below.

    ``regex`` must match the whole name. Python and Java agree on the expressions people write;
    a group of both should keep to those. Raises ValueError for what is no expression.
    """

    regex: str
    kind: str = WHITE_LIST

    def __post_init__(self) -> None:
        if self.kind not in (WHITE_LIST, BLACK_LIST):
            raise ValueError(f"{self.kind} is neither {WHITE_LIST} nor {BLACK_LIST}")
        try:
            re.compile(self.regex)
        except re.error as error:
            raise ValueError(f"{self.regex!r} is no regular expression: {error}") from None

    def allows(self, topic: str, *, exclude_internal: bool = True) -> bool:
        """Whether a topic passes."""
        if exclude_internal and is_internal(topic):
            return False
        return (re.fullmatch(self.regex, topic) is not None) is (self.kind == WHITE_LIST)

    def select(self, topics: Iterable[str], *, exclude_internal: bool = True) -> list[str]:
        """The topics that pass, sorted."""
        return sorted(
            topic for topic in topics if self.allows(topic, exclude_internal=exclude_internal)
        )


def whitelist(text: str) -> TopicFilter:
    """Topics that match; commas separate alternatives: ``orders,pay.*``."""
    return TopicFilter(_cleaned(text), WHITE_LIST)


def blacklist(text: str) -> TopicFilter:
    """Topics that do not match."""
    return TopicFilter(_cleaned(text), BLACK_LIST)


def _cleaned(text: str) -> str:
    return text.strip().replace(",", "|").replace(" ", "").strip("\"'")

"""Where a reader begins and ends: what was typed, as offsets of each partition.

Source: docs/spec/users.md §2.2 (kcat -o).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.list_offsets import EARLIEST, LATEST
from barnabas.client.topology import TopicPartition
from barnabas.console.command_line.failure import Failure
from barnabas.console.groups.time_arguments import datetime_ms

_INT64_MAX: Final = (1 << 63) - 1
_BY_NAME: Final = {"beginning": EARLIEST, "end": LATEST}


class Start(NamedTuple):
    """An offset, or so many before the end, or a time (EARLIEST and LATEST are times, too)."""

    offset: int | None = None
    before_end: int | None = None
    time: int | None = None


FROM_BEGINNING: Final = Start(time=EARLIEST)


def start_of(text: str) -> Start:
    """``beginning``, ``end``, ``N``, ``-N`` or ``@TIME``; a type for argparse."""
    if text in _BY_NAME:
        return Start(time=_BY_NAME[text])
    if text.startswith("@"):
        when = text[1:]
        return Start(time=_number(when) if _is_number(when) else datetime_ms(when))
    if text.startswith("-") and _is_number(text[1:]):
        return Start(before_end=_number(text[1:]))
    if _is_number(text):
        return Start(offset=_number(text))
    raise argparse.ArgumentTypeError(
        f"{text} must be beginning, end, an offset, -N for the last N, or @TIME"
    )


async def positions(
    consumer: Consumer,
    partitions: Iterable[TopicPartition],
    start: Start,
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """The first offset to read of each partition; an offset outside its log is the nearest one."""
    wanted = list(partitions)
    if start.time is not None and start.time >= 0:
        found = await consumer.offsets_for_times(dict.fromkeys(wanted, start.time))
        return {place: ends[place] if at < 0 else at for place, at in found.items()}
    if start.time == LATEST:
        return {place: ends[place] for place in wanted}
    first = await consumer.offsets_for_times(dict.fromkeys(wanted, EARLIEST))
    if start.before_end is not None:
        return {place: max(first[place], ends[place] - start.before_end) for place in wanted}
    if start.offset is not None:
        return {place: min(max(first[place], start.offset), ends[place]) for place in wanted}
    return first


def partitions_of(topic: str, count: int, chosen: list[int]) -> list[TopicPartition]:
    """All partitions of a topic, or those that were chosen; raises Failure for one it lacks."""
    for index in chosen:
        if index >= count:
            raise Failure(f"{topic} has {count} partitions: there is no {index}")
    return [TopicPartition(topic, index) for index in chosen or range(count)]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _number(text: str) -> int:
    number = int(text)
    if number > _INT64_MAX:
        raise argparse.ArgumentTypeError(f"{text} does not fit into 64 bits")
    return number

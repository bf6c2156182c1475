"""Decodes a whole record batch into a list at once: the hot loop of every reader.

Both functions read records without headers, as nearly everybody writes them, and say False,
with ``found`` as it was, at the first that is otherwise: then records/record.py reads the batch,
more slowly and with every check. The layout is drawn there. Source: docs/spec/log.md §1.5.
"""

from __future__ import annotations

from typing import Any

from barnabas.client.topology import TopicPartition
from barnabas.protocol.records.batch import Header

from .consumed_records import ConsumedRecord


def consumed_records(  # noqa: C901 - hot loop
    data: bytes, head: Header, topic_partition: TopicPartition, found: list[ConsumedRecord]
) -> bool:
    """Append the records of one batch; ``data`` is its record section, decompressed."""
    topic, partition = topic_partition
    base_offset, base_time, append_time = head.base_offset, head.base_timestamp, head.append_time
    cls, make, add = ConsumedRecord, tuple.__new__, found.append
    before, position = len(found), 0
    try:
        for _ in range(head.record_count):
            size = data[position]
            if size < 0x80:
                position += 1
            elif (high := data[position + 1]) < 0x80:
                size, position = size & 0x7F | high << 7, position + 2
            else:
                size, position = _varint(data, position)
            stop = position + (size >> 1)
            stamp = data[position + 1]
            position += 2
            if stamp >= 0x80:
                stamp, position = _varint(data, position - 1)
            delta = data[position]
            if delta < 0x80:
                position += 1
            elif (high := data[position + 1]) < 0x80:
                delta, position = delta & 0x7F | high << 7, position + 2
            else:
                delta, position = _varint(data, position)
            key_size = data[position]
            if key_size < 0x80:
                position += 1
            else:
                key_size, position = _varint(data, position)
            key: bytes | None = None
            if key_size != 1:
                start, position = position, position + (key_size >> 1)
                key = data[start:position]
            value_size = data[position]
            if value_size < 0x80:
                position += 1
            elif (high := data[position + 1]) < 0x80:
                value_size, position = value_size & 0x7F | high << 7, position + 2
            else:
                value_size, position = _varint(data, position)
            start, position = position, position + (value_size >> 1)
            # Odd is negative: a null, or what no producer of today writes.
            if (size | stamp | delta) & 1 or data[position] or position + 1 != stop:
                break
            value = data[start:position] if value_size != 1 else None
            time = append_time if append_time is not None else base_time + (stamp >> 1)
            add(make(cls, (topic, partition, base_offset + (delta >> 1), time, key, value, ())))
            position = stop
        else:
            if position == len(data):
                return True
    except IndexError:
        pass
    del found[before:]
    return False


def record_values(data: bytes, count: int, found: list[Any]) -> bool:
    """Append the values of the ``count`` records of one batch."""
    before, position = len(found), 0
    add = found.append
    try:
        for _ in range(count):
            size = data[position]
            if size < 0x80:
                position += 1
            else:
                size, position = _varint(data, position)
            stop = position + (size >> 1)
            position += 1
            while data[position] >= 0x80:
                position += 1
            position += 1
            while data[position] >= 0x80:
                position += 1
            key_size, position = _varint(data, position + 1)
            if key_size != 1:
                position += key_size >> 1
            value_size, position = _varint(data, position)
            start, position = position, position + (value_size >> 1)
            if size & 1 or data[position] or position + 1 != stop:
                break
            add(data[start:position] if value_size != 1 else None)
            position = stop
        else:
            if position == len(data):
                return True
    except IndexError:
        pass
    del found[before:]
    return False


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of any length as it is written, its sign still in the lowest bit."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7

"""Records as pyarrow tables and pandas frames, both optional.

Columns: topic, partition, offset, timestamp (UTC, milliseconds), key, value, headers.
Source: docs/spec/users.md §6.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .consumed_records import ConsumedRecord

if TYPE_CHECKING:
    import pandas
    import pyarrow


class MissingExtra(ImportError):  # noqa: N818 - reads as what happened
    """A frame was asked for without the package that makes it."""


def arrow_table(records: Sequence[ConsumedRecord]) -> pyarrow.Table:
    """A table with a row a record; raises MissingExtra without pyarrow."""
    arrow = _imported("pyarrow")
    header = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
    schema = arrow.schema(
        [
            ("topic", arrow.string()),
            ("partition", arrow.int32()),
            ("offset", arrow.int64()),
            ("timestamp", arrow.timestamp("ms", "UTC")),
            ("key", arrow.binary()),
            ("value", arrow.binary()),
            ("headers", arrow.list_(header)),
        ]
    )
    columns: list[list[Any]] = [[record[i] for record in records] for i in range(6)]
    columns[3] = [None if stamp < 0 else stamp for stamp in columns[3]]
    columns.append(
        [[{"key": key, "value": value} for key, value in record.headers] for record in records]
    )
    arrays = [
        arrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return arrow.Table.from_arrays(arrays, schema=schema)


def pandas_frame(records: Sequence[ConsumedRecord]) -> pandas.DataFrame:
    """A frame with a row a record; raises MissingExtra without pandas."""
    library = _imported("pandas")
    frame = library.DataFrame.from_records(list(records), columns=list(ConsumedRecord._fields))
    frame["timestamp"] = library.to_datetime(
        frame["timestamp"].where(frame["timestamp"] >= 0), unit="ms", utc=True
    )
    return frame


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtra(f"{name} is not installed: pip install {name}") from error

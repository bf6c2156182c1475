"""The data source ``barnabas``, by the name under which Spark discovers it.

Spark imports every ``pyspark_*`` package at the first use of any data source: what is here must
be light, the rest is imported when it is used. Source: docs/spec/pipeline.md §5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """``spark.read.format("barnabas")`` and its three relatives; see docs/pipeline.md."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "barnabas"

    def schema(self) -> str:
        """The columns that mode and options ask for."""
        from barnabas.pipeline.source.modes import layout_of

        return layout_of(self.options).spark

    def reader(self, schema: StructType) -> DataSourceReader:
        """What is there now."""
        from barnabas.pipeline.source.modes import batch_reader

        return batch_reader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """What is there and what comes."""
        from barnabas.pipeline.source.modes import stream_reader

        return stream_reader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Rows as records of topics, once."""
        from barnabas.pipeline.sink.modes import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Rows as records of topics or as an archive, batch after batch."""
        from barnabas.pipeline.sink.modes import stream_writer

        return stream_writer(self.options, schema)

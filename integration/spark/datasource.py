"""``format("pyclient")``: the data source that Spark finds under that name. Readers and writers do its work.

Imports only pyspark: Spark also loads it in processes that only look for formats. A failure there would hide the
formats of every other package too.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.session import SparkSession
    from pyspark.sql.types import StructType

_REDACTED: Final = "spark.sql.redaction.options.regex"


class PyclientDataSource(DataSource):
    """Kafka topics as tables and streams, with the option names and columns of Spark's own Kafka source.

    `pyclient.integration.spark.options` has the options. Installed packages are found by Spark itself;
    elsewhere `register` makes the name known.
    """

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(...)``."""
        return "pyclient"

    def schema(self) -> StructType:
        """The columns of the source. Checks the options, so that mistakes show when ``load()`` is called."""
        from pyclient.integration.spark.columns import spark_schema
        from pyclient.integration.spark.options import SourceOptions

        return spark_schema(headers=SourceOptions.parse(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        from pyclient.integration.spark.options import SourceOptions
        from pyclient.integration.spark.source import BatchReader

        return BatchReader(SourceOptions.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For ``spark.readStream``."""
        from pyclient.integration.spark.options import SourceOptions
        from pyclient.integration.spark.source import StreamReader

        return StreamReader(SourceOptions.parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``df.write``."""
        from pyclient.integration.spark.options import SinkOptions
        from pyclient.integration.spark.sink import BatchWriter

        return BatchWriter(SinkOptions.parse(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For ``df.writeStream``."""
        from pyclient.integration.spark.options import SinkOptions
        from pyclient.integration.spark.sink import StreamWriter

        return StreamWriter(SinkOptions.parse(self.options), schema)


def register(spark: SparkSession) -> None:
    """Register ``format("pyclient")`` with *spark*; needed if Spark does not find it, as in editable installs.

    Also adds secret options to the session's ``spark.sql.redaction.options.regex``. Otherwise the plans of streams and
    SQL commands show those that Spark does not recognize as secrets, such as ``kafka.ssl.keystore.key``.
    """
    from pyclient.integration.spark.options import HIDDEN_IN_PLANS

    spark.dataSource.register(PyclientDataSource)
    hidden = spark.conf.get(_REDACTED) or ""
    if HIDDEN_IN_PLANS not in hidden:
        spark.conf.set(_REDACTED, "|".join(filter(None, (hidden, HIDDEN_IN_PLANS))))

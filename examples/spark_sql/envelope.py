"""Records of Kafka Connect's JsonConverter, ``{"schema": {...}, "payload": {...}}``: the payload as columns."""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def payloads(records: DataFrame, payload: str) -> DataFrame:
    """The payload of each record; *payload* is its type in Spark's words: ``STRUCT<id: BIGINT, name: STRING>``.

    Only the envelope's ``schema`` is left as text: every record repeats it, and the columns are declared here.
    """
    from pyspark.sql import functions as fn

    envelope = fn.from_json(fn.col("value").cast("string"), f"schema STRING, payload {payload}")
    return records.select(envelope.alias("envelope")).select("envelope.payload.*")

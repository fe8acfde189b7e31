"""Avro with a schema registry, by record and by columns: beside confluent-kafka's serializers and fastavro alone.

The same schema and values for all; both clients use one registry in this process, asked before the measurement. A
figure is the median of interleaved rounds in µs of the process's CPU per record, with the best round in brackets.
fastavro alone makes neither the frame with the schema's id nor any check. Columns are read from fetched batches to a
table, with all its other columns, and written from a struct column to a column of bytes.
"""
from __future__ import annotations

import argparse
import importlib.metadata
import io
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from pyclient.buffers.record_run import RecordRun
from pyclient.buffers.records_view import Records
from pyclient.codec.batches import read_batches
from pyclient.codec.encode import encode_batch
from pyclient.records import TopicPartition
from pyclient.serializers.avro_arrow import AvroDecoder, AvroEncoder
from pyclient.serializers.registry import SchemaRegistryClient
from pyclient.serializers.registry_avro import AvroRegistrySerde
from pyclient.testing import FakeSchemaRegistry

SCHEMA: Final[dict[str, Any]] = {"type": "record", "name": "Flight", "fields": [
    {"name": "id", "type": "long"}, {"name": "carrier", "type": "string"}, {"name": "delay", "type": "int"},
    {"name": "distance", "type": "double"}, {"name": "cancelled", "type": "boolean"}, {"name": "note", "type": ["null", "string"]}]}
VERSIONS: Final = ("confluent-kafka", "fastavro", "pyarrow")
PEER: Final = "confluent-kafka"
MUSTS: Final = (("serialize", "pyclient", 1.5), ("deserialize", "pyclient", 1.5), ("serialize", "pyclient, columns", 8.0), ("deserialize", "pyclient, columns", 8.0))
"""Work, client, and how many times less CPU it must take than confluent-kafka."""


class Case(NamedTuple):
    """One thing that one client does with all records."""

    work: str
    client: str
    call: Callable[[], object]


def values(count: int) -> list[dict[str, Any]]:
    """Records with a null in every third."""
    return [{"id": i * 7919, "carrier": f"C{i % 26}", "delay": i * 31 % 97 - 20, "distance": i * 1.5, "cancelled": i % 7 == 0,
             "note": None if i % 3 == 0 else "a note of the crew"} for i in range(count)]


def cases(url: str, rows: list[dict[str, Any]]) -> Iterator[Case]:
    """Each checks its result once before it is measured."""
    serde = AvroRegistrySerde(SchemaRegistryClient(url), SCHEMA)
    loose = AvroRegistrySerde(SchemaRegistryClient(url), SCHEMA, validate=False, strict=False)
    data = [serde.serialize("flights", row) for row in rows]
    assert [serde.deserialize("flights", each) for each in data] == rows
    yield Case("serialize", "pyclient", lambda: [serde.serialize("flights", row) for row in rows])
    yield Case("serialize", "pyclient, validate=False, strict=False", lambda: [loose.serialize("flights", row) for row in rows])
    yield Case("deserialize", "pyclient", lambda: [serde.deserialize("flights", each) for each in data])
    yield from columns(serde, rows, data)
    yield from confluent(url, rows, data)
    yield from fastavro_alone(serde, rows, data)


def columns(serde: AvroRegistrySerde, rows: list[dict[str, Any]], data: list[bytes]) -> Iterator[Case]:
    """`AvroDecoder` and `AvroEncoder`."""
    batches = read_batches(encode_batch([(0, None, each, ()) for each in data]))
    for batch in batches:
        batch.open()
    records = Records([RecordRun(TopicPartition("flights", 0), batch, 0, batch.count) for batch in batches])
    decoder, encoder = AvroDecoder(serde), AvroEncoder(serde)
    array = records.to_arrow(value=decoder)["value"].combine_chunks()

    def encode() -> Any:
        encoder.prepare("flights", is_key=False)
        return encoder.encode(array, topics=["flights"], places=None, first=0, is_key=False)

    assert array.to_pylist() == rows
    assert encode().to_pylist() == data
    yield Case("serialize", "pyclient, columns", encode)
    yield Case("deserialize", "pyclient, columns", lambda: records.to_arrow(headers=False, value=decoder))


def confluent(url: str, rows: list[dict[str, Any]], data: list[bytes]) -> Iterator[Case]:
    """With the serializers' own defaults."""
    from confluent_kafka.schema_registry import SchemaRegistryClient as Client
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    context, text = SerializationContext("flights", MessageField.VALUE), json.dumps(SCHEMA)
    write, read = AvroSerializer(Client({"url": url}), text), AvroDeserializer(Client({"url": url}), text)
    assert [write(row, context) for row in rows] == data
    assert [read(each, context) for each in data] == rows
    yield Case("serialize", "confluent-kafka", lambda: [write(row, context) for row in rows])
    yield Case("deserialize", "confluent-kafka", lambda: [read(each, context) for each in data])


def fastavro_alone(serde: AvroRegistrySerde, rows: list[dict[str, Any]], data: list[bytes]) -> Iterator[Case]:
    """Its reader and writer in a loop."""
    from fastavro import schemaless_reader, schemaless_writer

    assert serde.schema is not None
    parsed, bodies = serde.schema.parsed, [each[5:] for each in data]

    def write(row: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        schemaless_writer(out, parsed, row)
        return out.getvalue()

    yield Case("serialize", "fastavro alone", lambda: [write(row) for row in rows])
    yield Case("deserialize", "fastavro alone", lambda: [schemaless_reader(io.BytesIO(each), parsed, None) for each in bodies])


def measured(all_cases: list[Case], rounds: int, count: int) -> dict[Case, list[float]]:
    """µs of CPU per record, for each round."""
    found: dict[Case, list[float]] = {case: [] for case in all_cases}
    for _ in range(rounds):
        for case in all_cases:
            began = time.process_time()
            case.call()
            found[case].append((time.process_time() - began) / count * 1e6)
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How much to measure."""
    parser.add_argument("--records", type=int, default=2_000, help="in each round")
    parser.add_argument("--rounds", type=int, default=15)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure, print, return the figures."""
    with FakeSchemaRegistry() as registry:
        figures = measured(list(cases(registry.url, values(arguments.records))), arguments.rounds, arguments.records)
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS))
    rows = [{"work": case.work, "client": case.client, "median_us": round(statistics.median(each), 3), "best_us": round(min(each), 3)}
            for case, each in figures.items()]
    for row in sorted(rows, key=lambda each: (each["work"], each["median_us"])):
        print(f"{row['work']:12} {row['client']:40} {row['median_us']:8.3f} ({row['best_us']:.3f}) µs")
    return {"figures": rows, "musts": musts(rows)}


def musts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many times less CPU than confluent-kafka, printed beside what it must be."""
    medians = {(row["work"], row["client"]): row["median_us"] for row in rows}
    found = [{"work": work, "client": client, "times": round(medians[work, PEER] / medians[work, client], 1), "must": must}
             for work, client, must in MUSTS]
    for row in found:
        missed = "" if row["times"] >= row["must"] else ", missed"
        print(f"{row['work']:12} {row['client']:40} {row['times']:8.1f} times less CPU than {PEER} (must: {row['must']}{missed})")
    return found

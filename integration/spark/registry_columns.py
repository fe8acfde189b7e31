"""Columns of Avro data with a schema registry's ids, as structs and back: `from_registry`, `to_registry`.

The driver asks the registry while a query is built, for that settles the columns' types and whether a schema is
allowed. Tasks that write ask nothing more; tasks that read ask for the schemas of ids they have not seen. Arrow data
stays Arrow: `pyclient.serializers.avro_arrow` decodes and encodes whole columns.
"""
from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import attrs

from pyclient.codec.avro_program import node_of
from pyclient.errors import ConfigurationError, SerializationError
from pyclient.integration.spark.avro_types import arrow_from_spark, arrow_in_spark, spark_type
from pyclient.integration.spark.garbage import leave_out_what_is_loaded
from pyclient.integration.spark.producers import pickled
from pyclient.records.record import Record
from pyclient.serializers.avro_arrow import AvroDecoder, AvroEncoder
from pyclient.serializers.avro_codec import ColumnSource
from pyclient.serializers.avro_schema import AvroSchema, SchemaSource
from pyclient.serializers.registry import SchemaReference, SchemaRegistryClient
from pyclient.serializers.registry_avro import AvroRegistrySerde
from pyclient.serializers.registry_serde import PREFIX

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

Registry: TypeAlias = "str | Sequence[str] | Mapping[str, Any]"
"""URL or URLs, or the arguments of `SchemaRegistryClient` by name."""
MOST_DECODERS: Final = 8
SHOWN: Final = 5
"""Bytes of data that errors show: the magic byte and the schema's id."""


def from_registry(column: Column | str, registry: Registry, *, subject: str | None = None, schema: SchemaSource | None = None,
                  references: Sequence[SchemaReference] = (), headers: Column | str | None = None, is_key: bool = False,
                  on_error: Literal["raise", "null"] = "raise", ignore_rules: Collection[str] = ()) -> Column:
    """The values of *column*, binary Avro data with the id of its schema, in the columns of one schema.

    Give *subject*, whose latest schema at this moment is taken, or *schema* with its *references*. Data of other
    versions is read as values of it: defaults, aliases and promotions apply. Null stays null.

    *registry* is a URL, a list of them, or a mapping of the arguments of `SchemaRegistryClient`, such as
    ``{"url": ..., "basic_auth": (user, password)}``. *headers* names the column of headers where these hold the
    schema's GUID, and *is_key* whether *column* is a key, which has another header. *on_error* is ``"raise"``, which
    ends the task, or ``"null"``. *ignore_rules* is that of `AvroRegistrySerde`.

    Raises:
        ConfigurationError: an argument is wrong, or the schema has no columns in Spark.
        SchemaRegistryError: the registry does not know the subject, or does not answer; or the schema has a rule.
    """
    if (subject is None) == (schema is None):
        raise ConfigurationError("from_registry needs the columns to read as: give subject= to take its latest schema, or schema=, one of them",
                                 option="subject")
    if on_error not in ("raise", "null"):
        raise ConfigurationError(f"on_error = {on_error!r}: expected 'raise' or 'null'", option="on_error")
    arguments = _arguments(registry)
    with _client(arguments) as client:
        wanted = _schema_to_read(client, subject, schema, references, ignore_rules)
    task = Reading(_described("from_registry", column, subject), arguments, wanted, is_key, frozenset(ignore_rules), keeps_errors=on_error == "null")
    return _udf("from_registry", task, spark_type(node_of(wanted.parsed)))(*([column] if headers is None else [column, headers]))


def to_registry(column: Column | str, registry: Registry, *, subject: str, schema: SchemaSource | None = None,
                references: Sequence[SchemaReference] = (), auto_register: bool = True, normalize: bool = False, strict: bool = True,
                ignore_rules: Collection[str] = ()) -> Column:
    """The values of *column*, a struct for a record, as binary Avro data that begins with the id of its schema.

    *schema* is registered under *subject* at once, or must be there with ``auto_register=False``. Without one, the
    subject's latest schema at this moment is taken. Fields are found by name; one that is missing gets its default,
    and *strict* refuses those that the schema does not have. Null stays null: a tombstone. *registry* is as in
    `from_registry`; *references*, *normalize* and *ignore_rules* are those of `AvroRegistrySerde`.

    Raises:
        ConfigurationError: an argument is wrong, or the schema has no columns in Spark.
        SchemaRegistryError: the registry refuses the schema or does not know it, or does not answer.
    """
    with _client(_arguments(registry)) as client:
        serde = AvroRegistrySerde(client, schema, subject=lambda *_: subject, auto_register=auto_register, use_latest=schema is None,
                                  normalize=normalize, references=references, ignore_rules=ignore_rules)
        written, prefix = serde.column_source().written("")
    spark_type(node_of(written.parsed))  # what Spark has no columns for is refused here, not in tasks
    from pyspark.sql.types import BinaryType

    return _udf("to_registry", Writing(_described("to_registry", column, subject), written, prefix, strict), BinaryType())(column)


def _arguments(registry: Registry) -> dict[str, Any]:
    """Arguments of a client that tasks make for themselves."""
    made = dict(registry) if isinstance(registry, Mapping) else {"url": registry}
    if "url" not in made:
        raise ConfigurationError('the schema registry\'s url is missing: {"url": "http://host:8081", ...}', option="url")
    pickled(made)
    return made


def _client(arguments: dict[str, Any]) -> SchemaRegistryClient:
    try:
        return SchemaRegistryClient(**arguments)
    except TypeError as error:  # an argument that it does not have
        raise ConfigurationError(f"registry: {str(error).rpartition('__init__() ')[2]}", option="registry") from None


def _schema_to_read(client: SchemaRegistryClient, subject: str | None, schema: SchemaSource | None, references: Sequence[SchemaReference],
                    ignore_rules: Collection[str]) -> AvroSchema:
    if subject is not None:
        return AvroRegistrySerde(client, subject=lambda *_: subject, use_latest=True, ignore_rules=ignore_rules).column_source().written("")[0]
    found = AvroRegistrySerde(client, schema, references=references, ignore_rules=ignore_rules).schema
    assert found is not None, "it was given"
    return found


def _described(what: str, column: object, subject: str | None) -> str:
    """How errors of tasks name the place."""
    name = column if isinstance(column, str) else str(column).removeprefix("Column<'").removesuffix("'>")
    return f"{what}, column {name!r}" + ("" if subject is None else f", subject {subject!r}")


def _udf(name: str, task: Reading | Writing, kind: DataType) -> Callable[..., Column]:
    from pyspark.sql import functions

    def run(*columns: Any) -> Any:
        made = task(*columns)
        leave_out_what_is_loaded()
        return made

    run.__name__ = name  # what plans and the new column are called
    array = import_module("pyarrow").Array
    run.__annotations__ = {"columns": array, "return": array}  # Spark asks them which kind of function it is
    known: Any = functions  # its types do not list it
    made: Callable[..., Column] = known.arrow_udf(run, kind)
    return made


# ---- in tasks -------------------------------------------------------------------------------------------------------


class _Kept(NamedTuple):
    """A decoder of this process: with it the registry is asked once for a schema, not once for each task."""

    client: SchemaRegistryClient
    decoder: AvroDecoder


_kept: Final[dict[bytes, _Kept]] = {}


def _decoder(registry: Mapping[str, Any], schema: AvroSchema, ignore_rules: frozenset[str]) -> AvroDecoder:
    """It keeps errors in any case: it knows no topic and offset to name."""
    key = hashlib.sha256(pickled({**registry, "schema of the column": schema, "ignored rules": sorted(ignore_rules)})).digest()
    if key not in _kept:
        if len(_kept) >= MOST_DECODERS:
            forget()
        client = SchemaRegistryClient(**registry)
        _kept[key] = _Kept(client, AvroDecoder(AvroRegistrySerde(client, schema, ignore_rules=ignore_rules), on_error="null"))
    return _kept[key].decoder


def forget() -> None:
    """Close the decoders of this process."""
    while _kept:
        _kept.popitem()[1].client.close()


@attrs.frozen
class Reading:
    """What tasks run for `from_registry`."""

    where: str
    registry: dict[str, Any] = attrs.field(repr=False)
    schema: AvroSchema
    is_key: bool
    ignore_rules: frozenset[str] = frozenset()
    keeps_errors: bool = attrs.field(kw_only=True)

    def __call__(self, data: Any, headers: Any | None = None) -> Any:
        pa = import_module("pyarrow")

        data = data.cast(pa.binary())
        values, errors = _decoder(self.registry, self.schema, self.ignore_rules).decode(data, headers, lambda row: Record("", 0, row, -1), is_key=self.is_key)
        if not self.keeps_errors and errors.null_count < len(errors):
            row = errors.is_valid().index(True).as_py()
            raise self._refused(data[row].as_py(), errors[row].as_py())
        return self._fitted(data, values)

    def _fitted(self, data: Any, values: Any) -> Any:
        """*values* in the types that Spark has. A time may be beyond what they hold."""
        pa = import_module("pyarrow")

        kind = arrow_in_spark(values.type)
        try:
            return values.cast(kind)
        except pa.ArrowInvalid:
            return pa.concat_arrays([self._fitted_row(data[row].as_py(), values.slice(row, 1), kind) for row in range(len(values))])

    def _fitted_row(self, data: bytes, value: Any, kind: Any) -> Any:
        pa = import_module("pyarrow")

        try:
            return value.cast(kind)
        except pa.ArrowInvalid as error:
            if self.keeps_errors:
                return pa.nulls(1, kind)
            raise self._refused(data, f"a value does not fit Spark's type: {error}") from None

    def _refused(self, data: bytes, message: str) -> SerializationError:
        return SerializationError(f'{self.where}: {message} (data of {len(data)} B that begins with {data[:SHOWN].hex(" ")}; on_error="null" makes it null)')


@attrs.frozen
class Writing:
    """What tasks run for `to_registry`: they need no registry."""

    where: str
    schema: AvroSchema
    prefix: bytes
    strict: bool

    def __call__(self, data: Any) -> Any:
        encoder, node = AvroEncoder(self), node_of(self.schema.parsed)  # type: ignore[arg-type] # all it needs of a serde
        encoder.prepare("values", is_key=False)
        try:
            return encoder.encode(data.cast(arrow_from_spark(data.type, node)), topics=["values"], places=None, first=0, is_key=False).cast("binary")
        except SerializationError as error:
            raise SerializationError(f"{self.where}: {error.message.partition(': ')[2]}") from error.__cause__

    def column_source(self) -> ColumnSource:
        """What `AvroEncoder` asks a serde for."""
        return ColumnSource(PREFIX.size, None, lambda: self.schema, lambda topic, prefix: self.schema, lambda topic: (self.schema, self.prefix),
                            lambda topic: (), lambda topic, prefix: True, self.strict)

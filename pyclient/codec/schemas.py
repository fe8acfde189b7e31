# cython: language_level=3, freethreading_compatible=True
"""What messages hold, field by field, in each of their versions: the blocks of ``schemas.txt``.

A block's first line has a message's name, its versions, and from which one on it is flexible (KIP-482). Each other line
is a field: its name; its kind, with ``[]`` in front for an array; ``null`` if it may be null; ``tag`` and its number;
``classic`` if its length is never compact; the versions that have it, unless all do; and ``=`` with its default. A kind
that is no word of `KINDS` is an entity, whose fields are the lines behind it that begin with more spaces.

A schema is made when its message is first read or written. The fields of `Field` and `Schema` are declared in
schemas.pxd.
"""
import cython

import datetime
import os
import sys

from pyclient import codec

KINDS = {
    name: number
    for number, name in enumerate((
        "bool", "int8", "int16", "int32", "int64", "uint16", "float64", "uuid", "string",
        "bytes", "records", "error_code", "duration32", "duration64", "time",
    ))
}
MOST_ITEMS = {"MetadataResponseBroker": 10_000, "NodeEndpoint": 10_000, "MetadataResponsePartition": 200_000}
"""How many items an array of these entities may have: several times those of the largest clusters.

A byte of them becomes up to 65 in memory: nodes have connections and histories of failures, partitions have queues.
"""
MILLISECOND = datetime.timedelta(milliseconds=1)
_WORDS = {"null": None, "[]": (), "true": True, "false": False, '""': ""}
_schemas: dict = {}
_texts: list = []  # of schemas.txt, once it was read


class Message:
    """A message that was read, or an entity of one: an attribute for each field that its version has."""

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other):
        return type(other) is type(self) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


@cython.final
@cython.cclass
class Field:
    """How one field is encoded: its kind, and whether it is nullable, an array or tagged."""

    def __init__(self, words, default, nested, flexible):
        kind = words[1].removeprefix("[]")
        self.name = words[0]
        self.array = words[1] != kind
        self.nullable = "null" in words
        self.tag = int(words[words.index("tag") + 1]) if "tag" in words else -1
        self.flexible = flexible and "classic" not in words
        self.kind = ENTITY if nested is not None else KINDS[kind]
        self.most = MOST_ITEMS.get(kind, sys.maxsize)
        self.nested = nested
        self.required = not default
        self._set_default(default)

    @cython.cfunc
    def _set_default(self, text: str) -> object:
        if not text:
            self.default = () if self.array else None
        elif text == "{}":
            self.default = cython.cast(Schema, self.nested).default_message()
        elif text in _WORDS:
            self.default = () if self.array else _WORDS[text]
        else:
            self.default = int(text) * MILLISECOND if self.kind in (DURATION_32, DURATION_64) else int(text)
        self.plain_default = self.default if text != "{}" else cython.cast(Schema, self.nested).default_fields()


@cython.final
@cython.cclass
class Schema:
    """The fields of a message in one version, or of an entity in it, in the order of the wire."""

    def __init__(self, name, flexible, fields):
        self.name = name
        self.flexible = flexible
        self.names = tuple([cython.cast(Field, field).name for field in fields])
        self.message_type = type(name, (Message,), {"__slots__": self.names, "__module__": __name__})
        self.plain = [field for field in fields if cython.cast(Field, field).tag < 0]
        self.tagged = {cython.cast(Field, field).tag: field for field in fields if cython.cast(Field, field).tag >= 0}

    @cython.cfunc
    def default_message(self) -> object:
        made = self.message_type()
        for field in self.fields():
            setattr(made, cython.cast(Field, field).name, cython.cast(Field, field).default)
        return made

    @cython.cfunc
    def default_fields(self) -> dict:
        return {cython.cast(Field, field).name: cython.cast(Field, field).plain_default for field in self.fields()}

    @cython.cfunc
    def fields(self) -> list:
        return [*self.plain, *self.tagged.values()]


@cython.ccall
def schema_of(name: str, version: cython.int) -> Schema:
    """The (kept) schema of a message, such as ``MetadataRequest``.

    Raises:
        ValueError: there is no such message, or it has no such version.
    """
    schema = _schemas.get((name, version))
    if schema is None:
        schema = _schemas[name, version] = schema_in(_block(_text(), name), version)
    return schema


def schema_in(block: str, version: int) -> Schema:
    """The schema that a block has in this version.

    Raises:
        ValueError: it has no such version.
    """
    head, *lines = block.strip().split("\n")
    name, span, *flexible = head.split()
    if not _has(span, version):
        raise ValueError(f"{name} has no version {version}: {span} are known")
    return _Block(lines, version, bool(flexible) and version >= int(flexible[1])).entity(name, 1)


def fields_of(message: Message) -> dict:
    """What a message, or an entity of one, holds."""
    return {name: getattr(message, name) for name in message.__slots__}


def names_in(name: str) -> frozenset:
    """The names of all fields of a message, at any depth, in any version."""
    return frozenset([line.split()[0] for line in _block(_text(), name).split("\n")[1:]])


def _text():
    if not _texts:
        with open(f"{codec.__path__[0]}{os.sep}schemas.txt", encoding="utf-8") as file:  # noqa: PTH123  # pathlib takes long to load
            _texts.append(f"\n{file.read()}")
    return _texts[0]


def _block(text, name):
    start = text.find(f"\n{name} ") + 1
    if not start:
        raise ValueError(f"there is no message {name}")
    end = text.find("\n", start)
    while text.startswith("\n ", end):
        end = text.find("\n", end + 1)
    return text[start:end]


def _has(span, version):
    first, _, last = span.partition("-")
    return int(first) <= version <= int(last or first)


class _Block:
    """The fields of a block, read line by line, as they are in one version."""

    def __init__(self, lines, version, flexible):
        self._lines = lines
        self._version = version
        self._flexible = flexible
        self._at = 0

    def entity(self, name, depth):
        """The schema of the lines from here on that begin with at least *depth* spaces."""
        fields = []
        while self._at < len(self._lines) and self._depth() >= depth:
            field = self._field(depth)
            if field is not None:
                fields.append(field)
        return Schema(name, self._flexible, fields)

    def _depth(self):
        line = self._lines[self._at]
        return len(line) - len(line.lstrip(" "))

    def _field(self, depth):
        """The next field, with its entity's; None if this version does not have it."""
        line, _, default = self._lines[self._at].partition(" = ")
        words = line.split()
        self._at += 1
        spans = [word for at, word in enumerate(words) if at > 1 and word[0].isdigit() and words[at - 1] != "tag"]
        kind = words[1].removeprefix("[]")
        nested = None if kind in KINDS else self.entity(kind, depth + 1)
        return None if spans and not _has(spans[0], self._version) else Field(words, default, nested, self._flexible)

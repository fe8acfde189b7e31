"""Plugins: found as object, class, registered name or path; serializers of every shape are called alike."""
from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest

from pyclient.assignors import CooperativeStickyAssignor, RangeAssignor, RoundRobinAssignor, StickyAssignor
from pyclient.descriptions.topics import PartitionDescription
from pyclient.errors import ConfigurationError, SerializationError
from pyclient.partitioners import (
    ConsistentPartitioner, ConsistentRandomPartitioner, ExplicitPartitioner, Fnv1aPartitioner, Murmur2Partitioner, Murmur3Partitioner,
    RandomPartitioner, RoundRobinPartitioner, StickyPartitioner,
)
from pyclient.plugin_loading import KINDS, OWN_NAMES, available_plugins, load_plugin
from pyclient.plugins import AsyncRebalanceListener, ClusterView, Partitioner, RebalanceListener, SeesNewBatches
from pyclient.records import Node, TopicPartition
from pyclient.serializing import as_deserializer, as_serializer
from tests.distribution import ROOT


class Mine:
    def __init__(self, needed: int = 0) -> None:
        self.needed = needed

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Any) -> int:
        return self.needed


class Needy(Mine):
    def __init__(self, needed: int) -> None:
        super().__init__(needed)


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("consistent", ConsistentPartitioner), ("consistent_random", ConsistentRandomPartitioner), ("explicit", ExplicitPartitioner),
        ("fnv1a", Fnv1aPartitioner), ("murmur2", Murmur2Partitioner), ("murmur2_random", Murmur2Partitioner),
        ("murmur3", Murmur3Partitioner), ("random", RandomPartitioner), ("round-robin", RoundRobinPartitioner), ("sticky", StickyPartitioner),
    ],
)
def test_our_partitioners_are_found_by_their_registered_names(name: str, cls: type) -> None:
    assert type(load_plugin("partitioner", name)) is cls
    assert name in available_plugins("partitioner")


@pytest.mark.parametrize(
    ("name", "cls", "protocols"),
    [
        ("range", RangeAssignor, ("eager",)), ("roundrobin", RoundRobinAssignor, ("eager",)), ("sticky", StickyAssignor, ("eager",)),
        ("cooperative-sticky", CooperativeStickyAssignor, ("cooperative", "eager")),
    ],
)
def test_our_assignors_are_found_by_the_names_that_all_clients_know_them_by(name: str, cls: type, protocols: tuple[str, ...]) -> None:
    first, second = load_plugin("assignor", name), load_plugin("assignor", name)
    assert (first.name, first.protocols) == (name, protocols)
    assert type(first) is cls
    assert first is not second, "what it remembers is of one member"


def test_our_serdes_are_found_by_their_registered_names() -> None:
    assert set(available_plugins("serializer")) >= {"bytes", "double", "float", "integer", "json", "long", "short", "string", "uuid"}


def test_an_object_is_taken_as_it_is_and_a_class_is_made() -> None:
    mine = Mine(3)
    assert load_plugin("partitioner", mine) is mine
    assert isinstance(load_plugin("partitioner", Mine), Mine)


def test_a_path_is_imported() -> None:
    assert load_plugin("partitioner", "pyclient.partitioners.hashing:Murmur3Partitioner").__class__ is Murmur3Partitioner


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("murmur9", "no partitioner is called 'murmur9'; registered: consistent, consistent_random, explicit, fnv1a, murmur2, murmur2_random, murmur3, random, round-robin, sticky"),
        ("no_such_module:X", "cannot be loaded: No module named 'no_such_module'"), ("json:NoSuch", "cannot be loaded: .*NoSuch"),
        (":X", "package.module:Class"), ("json:", "package.module:Class"), ("json:JSONDecoder", "no method 'partition'"),
        (object(), "no method 'partition'"), (len, "no method 'partition'"), (Needy, "cannot be made without arguments .*: pass an object"),
    ],
)
def test_a_plugin_that_cannot_be_had_is_a_configuration_error_that_says_why(spec: object, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        load_plugin("partitioner", spec)


def install(folder: Path, distribution: str, group: str, **names: str) -> None:
    """Put the metadata of an installed *distribution* that registers *names* into *folder*."""
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items()))


def test_a_name_that_two_packages_register_is_an_error_that_names_both_and_the_way_out(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "acme-kafka", "pyclient.partitioners", geo="pyclient.partitioners:RandomPartitioner")
    install(tmp_path, "other-kafka", "pyclient.partitioners", geo="pyclient.partitioners:StickyPartitioner")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError) as caught:
        load_plugin("partitioner", "geo")
    assert caught.value.message.startswith(
        "partitioner 'geo' is registered by 2 installed packages: acme-kafka (pyclient.partitioners:RandomPartitioner) and "
        "other-kafka (pyclient.partitioners:StickyPartitioner). Give the one you want as 'package.module:Class'")


def test_the_metadata_of_packages_are_read_once_until_something_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def counted(*, group: str) -> object:
        reads.append(group)
        return entry_points(group=group)

    monkeypatch.setattr("importlib.metadata.entry_points", counted)
    monkeypatch.syspath_prepend(str(tmp_path))
    for _ in range(3):
        load_plugin("partitioner", "murmur2")
    assert reads == ["pyclient.partitioners"]
    install(tmp_path, "acme-kafka", "pyclient.partitioners", geo="pyclient.partitioners:RandomPartitioner")
    os.utime(tmp_path, ns=(1, 1))  # where clocks are coarse, too
    assert load_plugin("partitioner", "geo") is not None
    assert reads == ["pyclient.partitioners"] * 2


@pytest.mark.parametrize(("kind", "name"), [
    ("partitioner", "murmur2"), ("assignor", "range"), ("serializer", "json"), ("deserializer", "json"), ("sasl mechanism", "PLAIN")])
def test_a_package_cannot_replace_one_of_our_names_in_silence(
        kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "acme-kafka", KINDS[kind].group, **{name: "acme.kafka:Special"})
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError, match=rf"{name}.*acme-kafka \(acme.kafka:Special\) and pyclient-kafka"):
        load_plugin(kind, name)


@pytest.mark.parametrize(("kind", "name"), [("partitioner", "murmur2"), ("assignor", "range"), ("serializer", "json"), ("sasl mechanism", "PLAIN")])
def test_a_package_cannot_replace_our_names_where_our_own_metadata_are_missing(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the package is imported from an archive, or another one hides its metadata."""
    found = [EntryPoint(name, "acme.kafka:Special", KINDS[kind].group)]
    monkeypatch.setattr("pyclient.plugin_loading._installed", lambda _group: found)
    with pytest.raises(ConfigurationError, match=r"a package without a name \(acme.kafka:Special\) and pyclient itself"):
        load_plugin(kind, name)
    found.clear()
    assert load_plugin(kind, name) is not None


@pytest.mark.parametrize(("source", "complaint"), [
    ("raise RuntimeError('no licence')", "cannot be loaded: its module raised RuntimeError: no licence"),
    ("1 / 0", "cannot be loaded: its module raised ZeroDivisionError"),
    ("import no_such_module", "cannot be loaded: No module named 'no_such_module'"),
    ("Geo = None; del Geo", "cannot be loaded: .*'Geo'"),
    ("class Geo:\n    def partition(self): ...\n    def __init__(self): raise OSError('no file')", r"cannot be made: Geo\(\) raised OSError: no file"),
])
def test_a_plugin_that_raises_while_it_loads_is_an_error_that_names_package_module_and_class(
        source: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"acme_geo_{len(source)}"
    (tmp_path / f"{module}.py").write_text(source)
    install(tmp_path, "acme-kafka", "pyclient.partitioners", geo=f"{module}:Geo")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError, match=rf"^partitioner 'geo' of package acme-kafka \({module}:Geo\) {complaint}") as caught:
        load_plugin("partitioner", "geo")
    assert caught.value.__cause__ is not None
    with pytest.raises(ConfigurationError, match=complaint):
        load_plugin("partitioner", f"{module}:Geo")


def test_our_own_names_are_those_that_the_package_registers() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert {group: names for group, names in declared.items() if group.startswith("pyclient.")} == OWN_NAMES


def test_two_packages_may_register_one_name_for_the_same_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for distribution in ("acme-kafka", "other-kafka"):
        install(tmp_path, distribution, "pyclient.partitioners", geo="pyclient.partitioners:RandomPartitioner")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(load_plugin("partitioner", "geo"), RandomPartitioner)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_name_of_any_kind_names_where_to_register_it(kind: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(KINDS[kind].group)):
        load_plugin(kind, "no such name")


def test_a_partitioner_needs_no_base_class_and_its_optional_power_is_seen() -> None:
    class Watching(Mine):
        def on_new_batch(self, topic: str, partition: int) -> None: ...

    plain: Partitioner = Mine()
    assert not isinstance(plain, SeesNewBatches)
    assert isinstance(Watching(), SeesNewBatches)


class WithHeaders:
    def serialize(self, topic: str, value: Any, headers: Any = ()) -> bytes:
        return f"{topic}:{value}:{list(headers)}".encode()

    def deserialize(self, topic: str, data: bytes | None, headers: Any = ()) -> str:
        return f"{topic}:{data!r}:{list(headers)}"


class WithoutHeaders:
    def serialize(self, topic: str, value: Any) -> bytes:
        return f"{topic}:{value}".encode()

    def deserialize(self, topic: str, data: bytes | None) -> str:
        return f"{topic}:{data!r}"


HEADERS = [("h", b"1")]


def test_serializers_with_and_without_headers_and_plain_functions_are_called_alike() -> None:
    assert as_serializer(WithHeaders())("t", 5, HEADERS) == b"t:5:[('h', b'1')]"
    assert as_serializer(WithoutHeaders())("t", 5, HEADERS) == b"t:5"
    assert as_serializer(WithoutHeaders)("t", 5, HEADERS) == b"t:5"
    assert as_serializer(lambda value: str(value).encode())("t", 5, HEADERS) == b"5"
    assert as_serializer("string")("t", "ü", HEADERS) == "ü".encode()
    assert as_deserializer(WithHeaders())("t", b"5", HEADERS) == "t:b'5':[('h', b'1')]"
    assert as_deserializer(WithoutHeaders())("t", b"5", HEADERS) == "t:b'5'"
    assert as_deserializer(int)("t", b"5", HEADERS) == 5


def test_what_a_serializer_raises_becomes_a_serialization_error_with_topic_and_cause() -> None:
    with pytest.raises(SerializationError, match="cannot serialize a dict of topic 'orders': KeyError: 'x'") as caught:
        as_serializer(lambda value: value["x"])("orders", {}, ())
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(SerializationError, match="cannot deserialize a bytes of topic 'orders'"):
        as_deserializer(int)("orders", b"x", ())


def test_a_serializer_must_give_bytes_or_none() -> None:
    assert as_serializer(lambda value: None, may_drop=True)("t", 1, ()) is None
    assert as_serializer(bytearray)("t", 3, ()) == b"\0\0\0"
    with pytest.raises(SerializationError, match="^the serializer for topic 't' gave a str; it must give bytes or None$"):
        as_serializer(str)("t", 1, ())


def test_a_type_error_inside_a_serializer_is_not_mistaken_for_a_missing_parameter() -> None:
    def broken(topic: str, value: Any, headers: Any = ()) -> bytes:
        raise TypeError("serialize() takes 2 positional arguments but 3 were given")

    class Broken:
        serialize = staticmethod(broken)

    with pytest.raises(SerializationError, match="3 were given"):
        as_serializer(Broken())("t", 1, ())


def test_partitions_lost_are_revoked_unless_the_listener_says_otherwise() -> None:
    seen: list[Sequence[TopicPartition]] = []

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition], /) -> None: ...

        def on_partitions_revoked(self, partitions: Sequence[TopicPartition], /) -> None:
            seen.append(partitions)

    Listener().on_partitions_lost([TopicPartition("t", 1)])
    assert seen == [[TopicPartition("t", 1)]]


def test_partitions_lost_are_revoked_for_async_listeners_too() -> None:
    seen: list[Sequence[TopicPartition]] = []

    class Listener(AsyncRebalanceListener):
        async def on_partitions_assigned(self, partitions: Sequence[TopicPartition], /) -> None: ...

        async def on_partitions_revoked(self, partitions: Sequence[TopicPartition], /) -> None:
            seen.append(partitions)

    with pytest.raises(StopIteration):
        Listener().on_partitions_lost([TopicPartition("t", 1)]).send(None)
    assert seen == [[TopicPartition("t", 1)]]


def test_an_assignor_sees_the_racks_of_a_partitions_replicas() -> None:
    partition = PartitionDescription(0, 1, 0, replicas=(1, 2, 3, 9), isr=(1,))
    view = ClusterView({"t": [partition]}, {1: Node(1, "a", 1, "east"), 2: Node(2, "b", 1, "west"), 3: Node(3, "c", 1)})
    assert view.racks(partition) == {"east", "west"}

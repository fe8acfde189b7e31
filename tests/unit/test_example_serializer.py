"""The serializer of examples/signed_json, found by its entry point as an installed package's."""
from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from examples.signed_json import SignedJson
from pyclient import Consumer, Producer, TopicPartition
from pyclient.errors import ConfigurationError, SerializationError
from pyclient.plugin_loading import load_plugin
from pyclient.testing import FakeCluster

PACKAGE: Final = Path(__file__).parents[2] / "examples" / "signed_json"
SECRET: Final = b"marker-secret-of-the-example"


def read(cluster: FakeCluster, secret: bytes, topic: str = "t") -> list[tuple[Any, Any]]:
    serde = SignedJson(secret)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, key_deserializer=serde, value_deserializer=serde, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [(record.key, record.value) for record in consumer.poll(20)]


def test_signed_keys_and_values_are_read_with_the_secret_and_refused_without_it(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    serde = SignedJson(SECRET)
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, key_serializer=serde, value_serializer=serde) as producer:
        producer.send("t", {"total": 5}, 1)
        producer.send("t", None, 2)
    assert read(fake_cluster, SECRET) == [(1, {"total": 5}), (2, None)]
    with pytest.raises(SerializationError, match="'key_signature' is missing or does not fit"):
        read(fake_cluster, b"other")


def test_data_of_another_topic_is_refused(fake_cluster: FakeCluster) -> None:
    made = SignedJson(SECRET).serialize("t", 1)
    assert made is not None
    assert SignedJson(SECRET).deserialize("t", made.data, made.headers) == 1
    with pytest.raises(SerializationError):
        SignedJson(SECRET).deserialize("other", made.data, made.headers)


def test_the_package_registers_the_class_for_both_directions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["entry-points"]["pyclient.serializers"]
    assert names == {"signed-json": "signed_json:SignedJson"}
    info = tmp_path / "signed_json-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: signed-json\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pyclient.serializers]\nsigned-json = signed_json:SignedJson\n")
    monkeypatch.syspath_prepend(str(PACKAGE.parent))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("SIGNED_JSON_SECRET", raising=False)
    with pytest.raises(ConfigurationError, match=r"of package signed-json \(signed_json:SignedJson\) cannot be made: SignedJson\(\) raised KeyError"):
        load_plugin("serializer", "signed-json")
    monkeypatch.setenv("SIGNED_JSON_SECRET", SECRET.decode())
    assert hasattr(load_plugin("serializer", "signed-json"), "serialize")
    assert hasattr(load_plugin("deserializer", "signed-json"), "deserialize")

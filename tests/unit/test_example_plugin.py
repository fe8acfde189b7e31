"""The example of a user's own partitioner: it chooses what Java chooses, and is found by name once its package is
installed."""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.java_hashcode_partitioner import JavaHashCodePartitioner, hash_code
from pyclient import Producer
from pyclient.plugins import STICKY
from pyclient.testing import FakeCluster
from tests.distribution import run

PACKAGE: Final = Path(__file__).parents[2] / "examples" / "java_hashcode_partitioner"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("1", 49), ("Aa", 2112), ("BB", 2112), ("hello world", 1_794_106_052), ("polygenelubricants", -(2**31)), ("😀", 1_772_899)],
)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    assert hash_code(text) == expected


@given(st.text(), st.integers(1, 1000))
def test_a_negative_hash_is_taken_as_by_floorMod(text: str, count: int) -> None:
    chosen = JavaHashCodePartitioner().partition("t", text.encode("utf-8", "replace"), None, range(count))  # type: ignore[arg-type]
    assert chosen == hash_code(text.encode("utf-8", "replace").decode()) % count
    assert 0 <= chosen < count


def test_records_without_a_key_are_left_to_the_producer() -> None:
    assert JavaHashCodePartitioner().partition("t", None, b"", range(3)) is STICKY  # type: ignore[arg-type]


def test_keys_1_2_and_3_over_three_partitions_land_on_1_2_and_0(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders", partitions=3)
    named = "examples.java_hashcode_partitioner:JavaHashCodePartitioner"
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, partitioner=named) as producer:
        sent = [producer.send("orders", b"order", key=key).result(10).partition for key in (b"1", b"2", b"3")]
    assert sent == [1, 2, 0]
    assert {record.key: record.partition for record in fake_cluster.records("orders")} == {b"1": 1, b"2": 2, b"3": 0}


def test_the_installed_package_is_found_by_its_name(tmp_path: Path) -> None:
    copy = tmp_path / "source"
    copy.mkdir()
    for name in ("__init__.py", "pyproject.toml", "README.md"):
        (copy / name).write_bytes((PACKAGE / name).read_bytes())
    target = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(target), str(copy))
    program = (f"import sys; sys.path.insert(0, {os.fspath(target)!r}); from pyclient.plugin_loading import load_plugin; "
               "print([load_plugin('partitioner', 'java-hashcode').partition('t', key, None, range(3)) for key in (b'1', b'2', b'3')])")
    assert run(sys.executable, "-c", program).strip().endswith("[1, 2, 0]")

"""The example of a user's own interceptor: old records are not read, positions move over them, and it is found by name
once installed."""
from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

from examples.ttl_interceptor import TtlInterceptor
from pyclient import Consumer, Records, TopicPartition
from pyclient.records import Headers
from pyclient.testing import FakeCluster
from tests.distribution import run

PACKAGE: Final = Path(__file__).parents[2] / "examples" / "ttl_interceptor"
WHERE: Final = TopicPartition("offers", 0)
NOW_S: Final = 1_700_000_000


def offered(cluster: FakeCluster, *ages_s: float, headers: Headers = ()) -> None:
    """Records that are so old; each value says its age."""
    if "offers" not in cluster.topics():
        cluster.create_topic("offers")
    for age in ages_s:
        cluster.produce("offers", str(age).encode(), timestamp=round((NOW_S - age) * 1000), headers=headers)


def reading(cluster: FakeCluster, interceptor: object, **options: Any) -> Consumer:
    consumer = Consumer({}, bootstrap_servers=cluster.bootstrap_servers, interceptors=[interceptor],
                        **{"group_id": "shop", "auto_offset_reset": "earliest", **options})
    consumer.assign([WHERE])
    return consumer


def read(cluster: FakeCluster, interceptor: object) -> list[bytes | None]:
    """The values that are left."""
    with reading(cluster, interceptor) as consumer:
        end = consumer.end_offsets([WHERE])[WHERE]
        found: list[bytes | None] = []
        while consumer.position(WHERE) < end:
            found += [record.value for record in consumer.poll(0.1)]
    return found


@pytest.fixture
def ttl() -> TtlInterceptor:
    """Half a minute, on a clock that stands."""
    return TtlInterceptor(30, clock=lambda: NOW_S)


def test_what_is_older_is_left_out_and_positions_move_over_it(fake_cluster: FakeCluster, ttl: TtlInterceptor) -> None:
    offered(fake_cluster, 5, 31, 30, 3600, -10, 30.001)
    assert read(fake_cluster, ttl) == [b"5", b"30", b"-10"]
    assert ttl.expired == 3
    assert fake_cluster.committed("shop")[WHERE].offset == 6


def test_with_old_records_only_the_group_is_behind_them_all_the_same(fake_cluster: FakeCluster, ttl: TtlInterceptor) -> None:
    offered(fake_cluster, *range(100, 150))
    assert read(fake_cluster, ttl) == []
    assert fake_cluster.committed("shop")[WHERE].offset == 50
    offered(fake_cluster, 1)
    assert read(fake_cluster, ttl) == [b"1"]


def test_a_record_knows_better_by_its_header(fake_cluster: FakeCluster, ttl: TtlInterceptor) -> None:
    offered(fake_cluster, 50, 70, headers=[("ttl", b"10"), ("ttl", b"60")])
    offered(fake_cluster, 5, headers=[("ttl", b"1.5")])
    offered(fake_cluster, 29, 31, headers=[("ttl", b"soon"), ("other", b"999")])
    offered(fake_cluster, 28, 32, headers=[("ttl", None)])
    assert read(fake_cluster, ttl) == [b"50", b"29", b"28"]


def test_a_record_without_a_time_is_always_read(ttl: TtlInterceptor) -> None:
    class Timeless:
        timestamp = -1
        headers = ()

    assert ttl._lives(Timeless(), NOW_S)  # type: ignore[arg-type]


def test_a_loop_and_columns_see_what_is_left(fake_cluster: FakeCluster, ttl: TtlInterceptor) -> None:
    offered(fake_cluster, 100, 1, 100, 2)
    with reading(fake_cluster, ttl) as consumer:
        assert next(iter(consumer)).value == b"1"
        table = consumer.poll(20).to_arrow()
        while not table.num_rows:
            table = consumer.poll(20).to_arrow()
        assert table["offset"].to_pylist() == [3]
        assert table["value"].to_pylist() == [b"2"]


def test_the_columns_of_its_readme_choose_the_same(fake_cluster: FakeCluster) -> None:
    block = (PACKAGE / "README.md").read_text().split("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(block, names)

    class Columns(TtlInterceptor):
        def on_consume(self, records: Records, /) -> Records:
            left: Records = names["not_older_than_an_hour"](records)
            return left

    now = time.time()
    fake_cluster.create_topic("offers")
    for age in (10, 4000, 3500, 3700):
        fake_cluster.produce("offers", b"%d" % age, timestamp=round((now - age) * 1000))
    assert read(fake_cluster, Columns()) == [b"10", b"3500"]


def test_the_installed_package_is_found_by_its_name(tmp_path: Path) -> None:
    copy = tmp_path / "source"
    copy.mkdir()
    for name in ("__init__.py", "pyproject.toml", "README.md"):
        (copy / name).write_bytes((PACKAGE / name).read_bytes())
    target = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(target), str(copy))
    program = (f"import sys; sys.path.insert(0, {os.fspath(target)!r}); from pyclient.plugin_loading import load_plugin; "
               "print(type(load_plugin('consumer interceptor', 'ttl')).__name__)")
    assert run(sys.executable, "-c", program).strip().endswith("TtlInterceptor")

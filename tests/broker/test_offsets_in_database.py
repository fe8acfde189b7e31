"""The example of offsets in a database on real brokers: killed at many lines, it stores each record as one row."""
from __future__ import annotations

from pathlib import Path

import pytest

from pyclient.testing import LocalCluster
from tests.kafka import make_topic
from tests.offsets import check, fill, killed


@pytest.mark.parametrize("kind", ["broken", "mended"])
def test_killed_anywhere_it_has_each_row_once_and_goes_on_where_it_was(kafka_cluster: LocalCluster, topic: str, tmp_path: Path, kind: str) -> None:
    make_topic(kafka_cluster, topic)
    fill(kafka_cluster.bootstrap_servers, topic)
    check(killed(kafka_cluster.bootstrap_servers, topic, tmp_path, kind, 20, 7), kind)

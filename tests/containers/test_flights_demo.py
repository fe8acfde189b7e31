"""The main job against a broker in a container."""
from __future__ import annotations

from pathlib import Path

from pyclient.testing import LocalCluster
from tests.spark.demo import check_result, run_demo


def test_the_job_finds_what_the_csv_says_on_a_container_broker(tmp_path: Path) -> None:
    with LocalCluster(mode="container") as kafka:
        assert kafka.kind == "container"
        check_result(run_demo(kafka.bootstrap_servers, tmp_path / "demo.json"))

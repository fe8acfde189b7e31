"""examples/notebook, each cell as it stands there, with another address and topic."""
from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from pyclient.testing import LocalCluster
from tests.distribution import ROOT
from tests.kafka import make_topic
from tests.pages import WRITTEN_ADDRESS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = ROOT / "examples/notebook/first_look.ipynb"


def cells(kind: str) -> list[Any]:
    return [cell for cell in json.loads(FILE.read_text("utf-8"))["cells"] if cell["cell_type"] == kind]


def test_the_notebook_goes_from_a_topic_to_a_plot_and_back(
        spark: SparkSession, kafka_cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    make_topic(kafka_cluster, topic, 2)
    make_topic(kafka_cluster, f"{topic}-hourly", 2)
    names: dict[str, Any] = {}
    for cell in cells("code"):
        text = "".join(cell["source"]).replace(WRITTEN_ADDRESS, kafka_cluster.bootstrap_servers)
        exec(compile(text.replace('topic = "readings"', f"topic = {topic!r}"), cell["id"], "exec"), names)
    lines = {line.get_label(): line.get_ydata() for line in names["axes"].get_lines()}
    assert {name: len(each) for name, each in lines.items()} == dict.fromkeys(["cellar", "kitchen", "roof"], 24)
    averages = {(room, hour): sum(each["celsius"] for each in names["readings"] if each["room"] == room and each["at"].startswith(f"2026-03-01T{hour:02}")) / 12
                for room in lines for hour in range(24)}
    found = {(record.key, int(record.value["hour"][11:13])): record.value for record in names["found"]}
    assert len(names["found"]) == len(found) == 72
    assert {place: value["readings"] for place, value in found.items()} == dict.fromkeys(averages, 12)
    assert [place for place, value in found.items() if not math.isclose(value["celsius"], averages[place], abs_tol=0.006)] == []
    names["hourly"].unpersist()


def test_the_notebook_is_kept_without_what_a_run_leaves_in_it() -> None:
    assert [(cell["outputs"], cell["execution_count"]) for cell in cells("code")] == [([], None)] * len(cells("code"))

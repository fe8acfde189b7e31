"""The main job: right on real input, twice on one cluster, and not to be fooled."""
from __future__ import annotations

from pathlib import Path

import pytest

from examples.flights import data, topics
from examples.flights.__main__ import _compared, main
from examples.flights.report import Report
from pyclient.testing import LocalCluster
from tests.spark.demo import check_result, run_demo


def test_the_job_finds_what_the_csv_says(kafka_cluster: LocalCluster, tmp_path: Path) -> None:
    check_result(run_demo(kafka_cluster.bootstrap_servers, tmp_path / "build" / "demo.json"))


def test_a_second_run_on_a_cluster_takes_topics_of_its_own(kafka_cluster: LocalCluster) -> None:
    first, second = (topics.create(kafka_cluster.bootstrap_servers) for _ in range(2))
    assert len({*first, *second}) == 4
    assert second.flights.startswith("flights-")
    assert second.delays.startswith("delays-")


@pytest.mark.parametrize("number", range(len(data.Delays._fields)))
def test_a_figure_that_differs_from_the_csv_fails_its_check(number: int) -> None:
    right = data.expected(data.rows(500))
    key = min(right)
    figures = list(right[key])
    figures[number] += 1
    failed = [check.rule for check in _compared(right, {**right, key: data.Delays(*figures)}) if not check.holds]
    assert failed == [f"{data.Delays._fields[number]} of each as in the CSV"]


def test_a_missing_aggregate_fails_its_check() -> None:
    right = data.expected(data.rows(500))
    found = {key: each for key, each in right.items() if key != min(right)}
    assert not Report().checks(list(_compared(right, found)))


def test_the_right_answer_passes_every_check() -> None:
    right = data.expected(data.rows(500))
    assert Report().checks(list(_compared(right, dict(right))))


def test_delays_that_are_missing_are_left_out_of_sums_and_counts() -> None:
    given = [{"carrier": "X", "month": "1", "dep_delay": delay, "arr_delay": "-7"} for delay in ("5", "NA", "", "-2")]
    assert data.expected(given) == {("X", 1): data.Delays(flights=4, dep_delay_sum=3, dep_delays=2, arr_delay_sum=-28, arr_delays=4)}


def test_a_flight_is_sent_with_numbers_as_numbers_and_gaps_as_null() -> None:
    row = next(data.rows(1))
    assert data.flight({**row, "dep_delay": "NA"}) | {"time_hour": ""} == {
        "year": 2013, "month": 1, "day": 1, "dep_time": 517, "sched_dep_time": 515, "dep_delay": None, "arr_time": 830,
        "sched_arr_time": 819, "arr_delay": 11, "carrier": "UA", "flight": 1545, "tailnum": "N14228", "origin": "EWR", "dest": "IAH",
        "air_time": 227, "distance": 1400, "hour": 5, "minute": 15, "time_hour": ""}


def test_all_flights_of_the_year_are_there() -> None:
    assert sum(1 for _ in data.rows()) == 336_776


def test_too_few_flights_for_the_batches_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--rows", "99"])
    assert ended.value.code == 2
    assert "99 flights are too few" in capsys.readouterr().err

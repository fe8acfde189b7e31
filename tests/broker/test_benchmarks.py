"""The benchmarks run: every client of ours, and librdkafka's, through a small case on a real broker."""
from __future__ import annotations

import random

import pytest

from benchmarks import _services, _transactions, consume, latency, produce, security, services, transactions
from benchmarks._access import access
from pyclient.testing import LocalCluster, Security

THEIRS = "confluent consume(500)"


def test_all_our_consumers_see_all_records(kafka_cluster: LocalCluster) -> None:
    case = consume.Case("small", codec="lz4", partitions=3, batch=16_384, clients=(*consume.OURS, *consume.OURS_ASYNC, THEIRS))
    found = consume.measured(kafka_cluster, case, 1, 4000, random.Random(1))
    assert found.keys() == {*case.clients, f"{THEIRS}, tuned"}
    assert all(each.cpu_us > 0 and each.records_per_s > 0 for each in found.values())
    assert {each.records for name, each in found.items() if name.startswith("pyclient")} == {4000}


def test_the_first_record_of_a_new_group_and_a_round_trip_are_timed(kafka_cluster: LocalCluster) -> None:
    chance = random.Random(1)
    first = consume.first_records(kafka_cluster, ("pyclient for", "pyclient async for", "confluent poll"), 1, chance)
    assert len(first) == 3
    assert all(row["ms"] > 0 for row in first.values())
    trips = consume.round_trips(kafka_cluster, consume.ROUND_TRIP, 1, 20, chance)
    assert trips.keys() == {"pyclient", "confluent"}
    assert all(0 < row["p50"] <= row["p99"] for row in trips.values())


def test_all_producers_and_callbacks_report_every_record(kafka_cluster: LocalCluster) -> None:
    case = produce.Case("small", partitions=3, clients=(*produce.OURS, "pyclient async", "confluent + callback"))
    found = produce.measured(kafka_cluster, case, 1, 0.004, random.Random(1))
    assert found.keys() == {*case.clients, "confluent + callback, tuned"}
    assert all(each.cpu_us > 0 for each in found.values())


def ours(case: latency.Case) -> latency.Case:
    return case._replace(clients=tuple(client for client in case.clients if client.startswith("pyclient")))


@pytest.mark.kafka(security=Security())
def test_every_client_sends_one_record_at_a_time_and_ours_show_where_its_time_goes(kafka_cluster: LocalCluster) -> None:
    plain, *others, secured = latency.CASES
    cases = [plain, *map(ours, others), secured]
    found = latency.measured(kafka_cluster, cases, 1, 20, random.Random(1))
    assert {name: rows.keys() for name, rows in found.items()} == {case.name: set(case.clients) for case in cases}
    assert all(0 < row["p50"] <= row["p99"] and row["cpu"] >= 0 for rows in found.values() for row in rows.values())
    timeline = latency.timelines(kafka_cluster, [case._replace(clients=(client,)) for case, client in zip((plain, secured), latency.STAGED, strict=True)], 20)
    assert len(timeline["stages"]) == len(timeline["counts"]) == 2
    assert all("return of send" in stages for stages in timeline["stages"].values())
    assert all(row["calls"] > 0 for row in timeline["counts"].values())


def test_every_client_commits_transactions_and_passes_records_through(kafka_cluster: LocalCluster) -> None:
    chance = random.Random(1)
    found = transactions.batches(kafka_cluster, transactions.Case(10, 8, keyed=True), tuple(_transactions.BATCHES), 1, chance)
    assert found.keys() == _transactions.BATCHES.keys()
    assert all(0 < row["p50_ms"] <= row["p99_ms"] and row["per_s"] > 0 for row in found.values())
    passed = transactions.loops(kafka_cluster, 600, tuple(_transactions.LOOPS), 1, chance)
    assert passed.keys() == _transactions.LOOPS.keys()


@pytest.mark.kafka(security=Security())
def test_every_client_serves(kafka_cluster: LocalCluster) -> None:
    alike = [*_services.STEADY_CASES][:-1]  # the last one has their partitions and their listener
    for case in [case for case in _services.CASES if case not in alike]:
        found = services.measured(kafka_cluster, case, 1, 0.3, random.Random(1))
        assert found.keys() == _services.CASES[case].clients.keys()
        assert all(figure >= 0 for row in found.values() for figure in row.values())
        assert [must for must in services.MUSTS if must.case == case and must.row({case: found})]


@pytest.mark.proof  # 40 s; the other benchmarks run the same clients without TLS
@pytest.mark.kafka(security=Security())
def test_all_our_clients_speak_tls_beside_confluents_and_log_in(kafka_cluster: LocalCluster) -> None:
    chance, to = random.Random(1), access(kafka_cluster, "SSL")
    sent = produce.measured(kafka_cluster, security.PRODUCE["TLS"][0]._replace(partitions=2), 1, 0.004, chance, to)
    assert sent.keys() == {*security.PRODUCERS, *(f"{name}, tuned" for name in security.PRODUCERS[3:])}
    case = security.CONSUME["TLS"][1]._replace(partitions=2, clients=(*security.CONSUMERS[:4], THEIRS))
    read = consume.measured(kafka_cluster, case, 1, 4000, chance, to)
    assert read.keys() == {*case.clients, f"{THEIRS}, tuned"}
    for login in security.LOGINS:
        taken = security.connections(kafka_cluster, login, 1, 2, chance)
        assert taken.keys() == {"pyclient", "confluent"}
        assert all(row["ms"] > 0 for row in taken.values())

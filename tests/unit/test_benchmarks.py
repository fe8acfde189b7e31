"""What a benchmark says is what was measured: nothing lost goes unseen, peers are met at their best, choices are
heeded."""
from __future__ import annotations

import argparse
import itertools
import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from benchmarks import _latencies, _rounds, _services, _timeline, consume, latency, produce, security, serializers, transactions
from benchmarks._consumers import Job, check
from benchmarks._rounds import Bound, Figure, Variant

JOB = Job("pyclient for", False, "localhost:9092", "t", 6, 100, 3)
RESULTS = {"100 B": {
    "ours": Figure(0.1, 0.09, 8e6, 100), "peer": Figure(0.5, 0.4, 2e6, 100), "peer, tuned": Figure(0.4, 0.3, 1e6, 100), "peers": Figure(0.01, 0.01, 9e6, 100),
}}


def arguments(add: Callable[[argparse.ArgumentParser], None], *given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.parse_args(given)


def test_a_run_that_saw_every_record_once_passes() -> None:
    check(JOB, 100, 100, b"abc")


@pytest.mark.parametrize(("seen", "position", "value"), [(99, 100, b"abc"), (101, 100, b"abc"), (100, 99, b"abc"), (100, 101, b"abc"), (100, 100, b"ab"), (100, 100, None)])
def test_a_run_that_lost_or_doubled_records_or_read_no_values_does_not_count(seen: int, position: int, value: bytes | None) -> None:
    with pytest.raises(RuntimeError, match="pyclient for"):
        check(JOB, seen, position, value)


def test_a_bound_is_measured_against_the_peers_better_setting() -> None:
    assert Bound("100 B", "ours", "peer", 3.0).times(RESULTS) == pytest.approx(4.0)
    assert Bound("100 B", "ours", "peer", 3.0, "records/s").times(RESULTS) == pytest.approx(4.0)


@pytest.mark.parametrize("bound", [Bound("100 B", "absent", "peer", 3.0), Bound("100 B", "ours", "absent", 3.0), Bound("absent", "ours", "peer", 3.0)])
def test_a_bound_without_a_measurement_is_not_reported(bound: Bound) -> None:
    assert _rounds.reached([bound], RESULTS) == []


def test_a_figure_is_the_median_of_the_rounds() -> None:
    found = _rounds.figure([{"cpu": cpu, "seconds": seconds, "records": 1000} for cpu, seconds in ((1e-3, 1.0), (9e-3, 0.1), (2e-3, 0.5))])
    assert tuple(found) == pytest.approx((2.0, 1.0, 2000, 1000))


def test_peers_run_with_their_defaults_and_tuned_and_ours_as_it_is() -> None:
    assert _rounds.variants(["pyclient for", "Java"]) == [Variant("pyclient for"), Variant("Java"), Variant("Java", True)]


def test_the_count_of_a_client_is_that_of_the_longest_words_it_begins_with() -> None:
    assert _rounds.count_of({"": 1, "confluent": 2, "confluent AIO": 3}, "confluent AIO consume(500)") == 3
    assert _rounds.count_of({"": 1, "confluent": 2, "confluent AIO": 3}, "confluent poll") == 2
    assert _rounds.count_of({"": 1, "confluent": 2}, "aiokafka") == 1


def test_cases_and_clients_are_chosen_by_parts_of_their_names() -> None:
    chosen = _rounds.chosen(arguments(consume.add_arguments, "--cases", "zstd", "--only", "1,000", "--clients", "to_arrow"), consume.CASES)
    assert [(case.name, case.clients) for case in chosen] == [(name, ("pyclient to_arrow", "pyclient async to_arrow")) for name in ("zstd", "1,000 partitions")]


def test_quick_is_the_first_case_and_a_quarter_of_the_records() -> None:
    given = arguments(produce.add_arguments, "--quick", "--scale", "2")
    assert [case.name for case in _rounds.chosen(given, produce.CASES)] == ["100 B"]
    assert _rounds.wanted(given, "memory")
    assert _rounds.scale_of(given) == 0.5


def test_tables_hold_what_was_measured_and_nothing_else() -> None:
    found = {"throughput": {}, "first": {"ours": {"ms": 12.3}}, "latency": {}}
    assert consume.written(found).splitlines() == ["| New group, until the first record | ms |", "| --- | --- |", "| ours | 12 |"]


def test_a_client_is_compared_with_ours_of_its_kind() -> None:
    assert [consume.own(name) for name in ("aiokafka getmany, tuned", "confluent poll")] == ["pyclient async for", "pyclient for"]
    assert [produce.own(name) for name in ("aiokafka, tuned", "confluent AIO", "confluent")] == ["pyclient async", "pyclient async", "pyclient send"]


def test_every_case_over_tls_must_take_no_more_cpu_than_either_of_confluents_ways() -> None:
    cases = {case.name: case.clients for listed in (security.PRODUCE["TLS"], security.CONSUME["TLS"]) for case in listed}
    for name, clients in cases.items():
        wanted = {(ours, peer) for ours in clients for peer in clients if ours.startswith("pyclient") and peer.startswith("confluent")}
        assert {(bound.client, bound.peer) for bound in security.BOUNDS if bound.case == name and bound.must == 1.0} == wanted


def test_consumers_and_producers_over_tls_are_compared_with_ours_of_their_kind() -> None:
    assert [security.own(name) for name in ("confluent poll, tuned", "confluent, tuned", "confluent + callback")] == ["pyclient for", "pyclient send", "pyclient send"]


def test_a_must_is_the_ratio_to_the_peers_figure_and_a_missed_one_is_marked() -> None:
    found = {"lz4": {_latencies.SEND: {"p50": 300.0, "p99": 550.0, "cpu": 60.0}, _latencies.CONFLUENT: {"p50": 200.0, "p99": 500.0, "cpu": 100.0}}}
    rows = list(latency.musts_table(found))[2:]
    assert [row.split("|")[5:7] for row in rows] == [[" 1.50 ", " ≤ 1.0, missed "], [" 1.10 ", " ≤ 1.1 "], [" 0.60 ", " ≤ 1.2 "]]


def test_a_must_without_a_measurement_is_not_reported() -> None:
    assert list(latency.musts_table({"lz4": {_latencies.SEND: {"p50": 1.0}}}))[2:] == []


@pytest.mark.parametrize("case", latency.CASES, ids=lambda case: case.name)
def test_ours_is_held_to_the_peers_figure_in_every_case_that_has_both(case: latency.Case) -> None:
    held = {(must.client, must.peer) for must in latency.MUSTS if must.case == case.name}
    pairs = {(_latencies.SEND, _latencies.CONFLUENT), (_latencies.AWAIT, _latencies.AIOKAFKA), (_latencies.POLL, _latencies.CONFLUENT_POLL)}
    assert held == {pair for pair in pairs if set(pair) <= set(case.clients)}


def test_cases_of_one_record_are_chosen_by_parts_of_their_names_and_of_their_clients() -> None:
    chosen = latency.chosen(arguments(latency.add_arguments, "--cases", "TLS", "--only", "lz4", "--clients", "send().result()"))
    assert [(case.name, case.clients) for case in chosen] == [("lz4", (_latencies.SEND,)), ("TLS, SCRAM-SHA-512", (_latencies.SEND,))]


def test_the_clients_of_a_case_are_measured_one_after_the_other() -> None:
    those = [Variant(client, case=case) for client in "xyz" for case in "abc"]
    order = _rounds.shuffled(those, random.Random(1))
    assert len([case for case, _ in itertools.groupby(order, key=lambda each: each.case)]) == 3
    assert sorted(order) == sorted(those)
    assert order != sorted(those, key=lambda each: each.case)


def test_records_go_to_all_partitions_in_turns_and_where_the_client_wants_if_there_is_one() -> None:
    assert list(itertools.islice(_services.in_turns(3, None), 5)) == [0, 1, 2, 0, 1]
    assert list(itertools.islice(_services.in_turns(1, None), 2)) == [None, None]


def test_each_way_of_the_loop_must_pass_on_twice_as_many_records_a_second() -> None:
    figures = {"cpu_us": 1.0, "per_s": 10.0}
    loop = dict.fromkeys(("pyclient ExactlyOnce, a poll each", "pyclient ExactlyOnce, Arrow, a poll each", "confluent"), figures)
    rows = list(transactions.musts_table({"loop": loop}))[2:]
    assert [row.split("|")[3:6] for row in rows] == [[" per_s ", " 1.00 ", " ≥ 2, missed "]] * 2


def test_stages_of_a_record_add_up_to_its_time_when_two_threads_run_at_once() -> None:
    moments = {"begin": 1.0, "send returns": 1.5, "write begins": 1.25, "write ends": 2.0, "result returns": 3.0}
    stages = _timeline.durations(moments)
    assert sum(stages.values()) == pytest.approx(2.0)
    assert stages[_timeline.STAGES["write begins"]] == 0.25
    assert stages[_timeline.STAGES["send returns"]] == 0.25


def test_records_of_the_warm_up_do_not_count() -> None:
    warmed: list[None] = []
    watch = _latencies.Stopwatch(10, lambda: warmed.append(None))
    assert len(list(watch.records())) == 10 + _latencies.warm_up(10)
    assert warmed == [None]
    assert watch.figures().keys() == {"p50", "p99", "cpu"}


def test_system_calls_are_read_from_the_total_of_straces_summary() -> None:
    summary = "% time     seconds  usecs/call     calls    errors syscall\n 60.00    0.1    5    20    2 read\n100.00    0.2    5    31    2 total\n"
    assert latency.total_of(summary) == 31


def test_a_stage_that_a_client_does_not_have_stays_empty() -> None:
    assert list(latency.stages_table({"a": {"encode": 3.0}, "b": {}}))[2:] == ["| encode | 3 | – |"]


def test_serializers_are_compared_by_record_and_by_columns_of_equal_values() -> None:
    run = subprocess.run([sys.executable, "-m", "benchmarks", "serializers", "--records", "20", "--rounds", "1"], capture_output=True, text=True, check=True)
    assert run.stdout.count("times less CPU than confluent-kafka") == len(serializers.MUSTS)

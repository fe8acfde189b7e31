"""What each error of a Produce response means for its batch: a table of all Kafka error codes (except P24's)."""
from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from pyclient.codec.apis import Api
from pyclient.core.sending.produce_outcome import GiveUp, Split, Stored, TryAgain, produce_outcome
from pyclient.errors import error_for
from pyclient.records import TopicPartition
from tests.unit.core.world import answer, topic_id

JAVA = Path(__file__).parents[2] / "data" / "errors-4.3.1.txt"
TP = TopicPartition("t", 0)
MOVED = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
"""The leader is elsewhere or its metadata is old: refresh it before the next attempt."""
MUST_RETRY = {2, 7, 19, 20, *(MOVED & {3, 5, 6, 56, 74, 100})}
MUST_GIVE_UP = {17, 18, 21, 29, 31, 32, 35, 42, 43, 44, 76, 87, 90}


def part(**fields: Any) -> Any:
    message = answer(Api.PRODUCE, 13, responses=[{"topic_id": None, "partition_responses": [{
        "index": 0, "error_code": 0, "base_offset": 42, "log_append_time": None, "log_start_offset": 0, "record_errors": [], **fields}]}])
    return message.responses[0].partition_responses[0]


def test_no_error_is_stored_at_its_offset() -> None:
    assert produce_outcome(TP, part()) == Stored(42, -1)


@pytest.mark.parametrize("offset", [-1, -5, -(2**63), 2**63 - 1, 2**63 - 2**31])
def test_I03_what_is_no_offset_is_an_unknown_one_and_no_error(offset: int) -> None:
    assert produce_outcome(TP, part(base_offset=offset)) == Stored(-1)


def test_the_last_offset_for_a_largest_batch_is_known() -> None:
    assert produce_outcome(TP, part(base_offset=2**63 - 2**31 - 1)) == Stored(2**63 - 2**31 - 1)


def test_the_brokers_timestamp_is_in_milliseconds() -> None:
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 678_000, tzinfo=datetime.timezone.utc)
    assert produce_outcome(TP, part(log_append_time=moment)) == Stored(42, 1_704_164_645_678)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.none], ids=lambda code: code.name)
def test_every_codes_outcome_follows_its_error_class(code: ErrorCode) -> None:
    outcome = produce_outcome(TP, part(error_code=code.value))
    facts = error_for(code.value)
    assert isinstance(outcome, TryAgain if facts.retriable else Split if code is ErrorCode.message_too_large else GiveUp)
    assert not isinstance(outcome, Stored)
    assert outcome.error.topic_partition == TP
    if isinstance(outcome, TryAgain):
        assert outcome.moved == facts.refresh


def javas_groups() -> dict[int, set[str]]:
    """Java's exception groups by code; its Sender retries RetriableException, refreshes for InvalidMetadata."""
    rows = (line.split("\t") for line in JAVA.read_text().splitlines()[1:])
    return {int(code): set(groups.split(",")) - {""} for code, _, _, groups in rows if code != "0"}


@pytest.mark.parametrize(("code", "groups"), javas_groups().items())
def test_C13_every_code_is_retried_or_given_up_as_by_javas_producer(code: int, groups: set[str]) -> None:
    outcome = produce_outcome(TP, part(error_code=code))
    assert isinstance(outcome, TryAgain) == ("Retriable" in groups)
    assert not isinstance(outcome, TryAgain) or outcome.moved >= ("InvalidMetadata" in groups)


@pytest.mark.parametrize("version", range(3, 14))
def test_every_supported_version_of_the_response_is_understood(version: int) -> None:
    named = {"topic_id": topic_id("t")} if version >= 13 else {"name": "t"}
    facts: dict[str, Any] = {"index": 0, "error_code": 6, "base_offset": -1, "log_append_time": None, "log_start_offset": -1,
                             "record_errors": [], "error_message": "it moved"}
    partition = answer(Api.PRODUCE, version, responses=[{**named, "partition_responses": [facts]}]).responses[0].partition_responses[0]
    outcome = produce_outcome(TP, partition)
    assert isinstance(outcome, TryAgain)
    assert outcome.moved
    assert ("it moved" in str(outcome.error)) == (version >= 8)  # responses have messages since then


@pytest.mark.parametrize("code", sorted(MUST_RETRY))
def test_C13_a_retriable_error_is_retried(code: int) -> None:
    outcome = produce_outcome(TP, part(error_code=code))
    assert isinstance(outcome, TryAgain)
    assert outcome.moved == (code in MOVED)


def test_P20_a_batch_that_is_too_large_may_be_split() -> None:
    assert isinstance(produce_outcome(TP, part(error_code=10)), Split)


@pytest.mark.parametrize("code", sorted(MUST_GIVE_UP))
def test_a_fatal_error_is_given_up(code: int) -> None:
    assert isinstance(produce_outcome(TP, part(error_code=code)), GiveUp)


def test_the_brokers_message_is_part_of_the_error() -> None:
    outcome = produce_outcome(TP, part(error_code=87, error_message="record 3 is too old"))
    assert isinstance(outcome, GiveUp)
    assert "record 3 is too old" in str(outcome.error)

"""Offsets and deleted records: the requests in every version, and one result or error per partition."""
from __future__ import annotations

import datetime
from typing import Any

import pytest

from pyclient.admin import ListedOffset, OffsetSpec
from pyclient.codec.apis import Api
from pyclient.core.admin.records import by_version, delete_records_call, list_offsets_call
from pyclient.core.calls import Broker, Call, Done
from pyclient.errors import NotLeaderOrFollowerError, OffsetOutOfRangeError
from pyclient.records import TopicPartition
from tests.unit.core.test_admin_calls import body, ignore, versions
from tests.unit.core.world import answer

ONE, TWO, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NOT_LEADER, OUT_OF_RANGE = 6, 1


def listing(specs: dict[TopicPartition, int]) -> Call:
    return list_offsets_call(specs, node=2, isolation=1, finish=ignore, deadline=None)


def deleting(offsets: dict[TopicPartition, int]) -> Call:
    return delete_records_call(offsets, node=2, timeout=3.0, finish=ignore, deadline=None)


@pytest.mark.parametrize("version", versions(Api.LIST_OFFSETS))
def test_listing_names_each_partition_once_in_every_version(version: int) -> None:
    call = listing({ONE: OffsetSpec.LATEST, OTHER: 1234, TWO: OffsetSpec.EARLIEST})
    assert call.target == Broker(2)
    read = body(call, version)
    assert [(each.name, [(part.partition_index, part.timestamp) for part in each.partitions]) for each in read.topics] == [
        ("t", [(0, -1), (1, -2)]), ("u", [(0, 1234)])]
    assert getattr(read, "isolation_level", 1) == 1


@pytest.mark.parametrize(("spec", "least"), [(OffsetSpec.MAX_TIMESTAMP, 7), (OffsetSpec.EARLIEST_LOCAL, 8), (OffsetSpec.LATEST_TIERED, 9)])
def test_a_newer_spec_is_asked_only_of_brokers_that_have_it(spec: OffsetSpec, least: int) -> None:
    limited = listing({ONE: spec}).versions
    assert limited is not None
    assert limited.low == least
    assert listing({ONE: 5}).versions is None


def test_what_an_older_broker_does_not_have_is_asked_for_apart() -> None:
    specs = {ONE: OffsetSpec.LATEST, TWO: OffsetSpec.MAX_TIMESTAMP, OTHER: 5}
    assert by_version(specs) == [{ONE: OffsetSpec.LATEST, OTHER: 5}, {TWO: OffsetSpec.MAX_TIMESTAMP}]


@pytest.mark.parametrize("version", [each for each in versions(Api.LIST_OFFSETS) if each >= 4])
def test_each_partition_listed_has_its_own_outcome(version: int) -> None:
    def part(number: int, **more: Any) -> dict[str, Any]:
        return {"partition_index": number, "offset": 7, "timestamp": 99, "leader_epoch": 3, **more}

    response = [{"name": "t", "partitions": [part(0), part(1, offset=-1, timestamp=-1, leader_epoch=-1)]},
                {"name": "u", "partitions": [part(0, error_code=NOT_LEADER)]}]
    verdict = listing({ONE: 5}).classify(answer(Api.LIST_OFFSETS, version, topics=response))
    assert isinstance(verdict, Done)
    assert verdict.result[ONE] == ListedOffset(7, 99, 3)
    assert verdict.result[TWO] is None
    assert isinstance(verdict.result[OTHER], NotLeaderOrFollowerError)


@pytest.mark.parametrize("version", versions(Api.DELETE_RECORDS))
def test_deleting_names_offsets_and_each_partition_has_its_own_outcome(version: int) -> None:
    read = body(deleting({ONE: 5, TWO: -1}), version)
    assert read.timeout == datetime.timedelta(seconds=3)
    assert [(part.partition_index, part.offset) for part in read.topics[0].partitions] == [(0, 5), (1, -1)]
    response = [{"name": "t", "partitions": [{"partition_index": 0, "low_watermark": 5},
                                             {"partition_index": 1, "low_watermark": -1, "error_code": OUT_OF_RANGE}]}]
    verdict = deleting({ONE: 5}).classify(answer(Api.DELETE_RECORDS, version, topics=response))
    assert isinstance(verdict, Done)
    assert verdict.result[ONE] == 5
    assert isinstance(verdict.result[TWO], OffsetOutOfRangeError)

"""The comparison itself: it must be able to find a difference, or the suite proves nothing."""
from __future__ import annotations

from pyclient.codec.apis import Api
from tests.broker.conformance.allowed import ALLOWED, Allowance
from tests.broker.conformance.comparing import Comparison
from tests.broker.conformance.script import Plain


def found(api: Api, real: Plain, fake: Plain, used: set[Allowance] | None = None) -> list[str]:
    return list(Comparison(set() if used is None else used).differences(api, real, fake))


def test_a_difference_is_reported_with_its_path_and_both_values() -> None:
    (line,) = found(Api.FETCH, {"responses": [{"offset": 1}]}, {"responses": [{"offset": 2}]})
    assert line == "responses.offset: the broker says 1, the model 2"


def test_a_field_or_item_that_one_side_lacks_is_a_difference() -> None:
    assert found(Api.HEARTBEAT, {"error_code": "none"}, {})
    assert found(Api.LIST_OFFSETS, {"topics": [{"name": "a"}]}, {"topics": []})
    assert found(Api.HEARTBEAT, "the connection was cut", {"error_code": "none"})


def test_the_order_of_a_list_counts_unless_it_is_allowed_not_to() -> None:
    one, two = {"name": "a"}, {"name": "b"}
    assert found(Api.LIST_OFFSETS, {"topics": [one, two]}, {"topics": [two, one]})
    assert not found(Api.METADATA, {"topics": [one, two]}, {"topics": [two, one]})
    assert found(Api.METADATA, {"topics": [one, two]}, {"topics": [two, two]})


def test_a_renamed_value_keeps_its_partner_through_a_run() -> None:
    comparison = Comparison(set())
    assert not list(comparison.differences(Api.JOIN_GROUP, {"member_id": "x", "leader": "x"}, {"member_id": "y", "leader": "y"}))
    assert list(comparison.differences(Api.JOIN_GROUP, {"member_id": "x"}, {"member_id": "z"}))
    assert list(comparison.differences(Api.JOIN_GROUP, {"member_id": "w"}, {"member_id": "y"}))


def test_a_value_absent_on_one_side_is_a_difference_even_where_values_are_free() -> None:
    assert found(Api.FETCH, {"session_id": 0}, {"session_id": 7})
    assert found(Api.PRODUCE, {"log_append_time": None}, {"log_append_time": 7})


def test_only_versions_of_apis_the_model_answers_are_compared() -> None:
    known = {"api_key": 3, "max_version": 13}
    assert not found(Api.API_VERSIONS, {"api_keys": [{"api_key": 1, "max_version": 2}, known]}, {"api_keys": [known]})
    assert found(Api.API_VERSIONS, {"api_keys": [known]}, {"api_keys": [{"api_key": 3, "max_version": 12}]})
    assert found(Api.API_VERSIONS, {"api_keys": [known]}, {"api_keys": [known, {"api_key": 4, "max_version": 12}]})


def test_what_stands_apart_may_be_there_or_not_and_nothing_else() -> None:
    apart, level = {"name": "kraft.version", "max_version_level": 1}, {"name": "metadata.version", "max_version_level": 30}
    assert not found(Api.API_VERSIONS, {"finalized_features": [level]}, {"finalized_features": [apart, level]})
    assert found(Api.API_VERSIONS, {"finalized_features": [apart]}, {"finalized_features": [apart, level]})


def test_an_allowance_counts_as_needed_only_where_answers_differed() -> None:
    used: set[Allowance] = set()
    found(Api.METADATA, {"cluster_id": "a"}, {"cluster_id": "a"}, used)
    assert not used
    found(Api.METADATA, {"cluster_id": "a"}, {"cluster_id": "b"}, used)
    assert [row.field for row in used] == ["cluster_id"]
    assert used <= set(ALLOWED)

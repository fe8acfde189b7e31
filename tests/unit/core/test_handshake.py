"""Agreeing on versions: what is asked, and what each answer or failure leads to (M08, M15)."""
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.core.handshake import Features, HandshakeRequest, ClientInfo, Exchange, VersionZeroNeededError, Versions, agree_on_versions
from pyclient.errors import ClusterAuthorizationError, DisconnectError, ProtocolError, UnsupportedVersionError
from tests.unit.core.world import answer

CLIENT = ClientInfo("pyclient", "1.0")
UNSUPPORTED = 35
NEWEST = SPOKEN[Api.API_VERSIONS].high


def offers(version: int, *ranges: tuple[int, int, int], error: int = 0) -> Any:
    keys = [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in ranges]
    return answer(Api.API_VERSIONS, version, error_code=error, api_keys=keys)


def agreed(exchange: Exchange, message: Any) -> Versions:
    with pytest.raises(StopIteration) as ended:
        exchange.send(message)
    assert isinstance(ended.value.value, Versions)
    return ended.value.value


def test_M08_the_first_request_has_the_newest_version_and_the_clients_name() -> None:
    question = next(agree_on_versions(CLIENT))
    introduction: dict[str, object] = {"client_software_name": "pyclient", "client_software_version": "1.0"}
    assert question == HandshakeRequest(Api.API_VERSIONS, NEWEST, introduction)


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_M08_an_response_of_any_version_has_the_ranges(version: int) -> None:
    exchange = agree_on_versions(CLIENT, version)
    next(exchange)
    versions = agreed(exchange, offers(version, (Api.FETCH, 4, 99), (Api.METADATA, 0, 7)))
    assert dict(versions.offered) == {Api.FETCH: VersionRange(4, 99), Api.METADATA: VersionRange(0, 7)}


def test_M08_a_broker_that_does_not_know_the_version_gets_one_that_it_has() -> None:
    exchange = agree_on_versions(CLIENT)
    next(exchange)
    again = exchange.send(offers(0, (Api.API_VERSIONS, 0, 2), error=UNSUPPORTED))
    assert again == HandshakeRequest(Api.API_VERSIONS, 2, {})
    assert agreed(exchange, offers(2, (Api.METADATA, 0, 7))).choose(Api.METADATA) == 7


def test_M08_a_refusal_without_a_range_leads_to_version_0() -> None:
    exchange = agree_on_versions(CLIENT)
    next(exchange)
    assert exchange.send(offers(0, error=UNSUPPORTED)) == HandshakeRequest(Api.API_VERSIONS, 0, {})


@given(data=st.data())
def test_M08_after_each_refusal_a_lower_version_is_tried_until_none_is_left(data: st.DataObject) -> None:
    exchange = agree_on_versions(CLIENT)
    asked = [next(exchange).version]
    while asked[-1] > 0:
        high = data.draw(st.integers(-1, 9))
        asked.append(exchange.send(offers(0, (Api.API_VERSIONS, 0, high), error=UNSUPPORTED)).version)
        assert 0 <= asked[-1] < asked[-2]
    with pytest.raises(UnsupportedVersionError, match="refused the ApiVersions request"):
        exchange.send(offers(0, error=UNSUPPORTED))


@pytest.mark.parametrize("failure", [ProtocolError("not Kafka"), DisconnectError("it hung up")])
def test_M08_after_an_undecodable_response_or_a_closed_connection_version_0_is_tried(failure: Exception) -> None:
    exchange = agree_on_versions(CLIENT)
    next(exchange)
    with pytest.raises(VersionZeroNeededError, match=str(failure.args[0])):
        exchange.throw(failure)
    again = agree_on_versions(CLIENT, 0)
    assert next(again) == HandshakeRequest(Api.API_VERSIONS, 0, {})
    with pytest.raises(type(failure)):
        again.throw(failure)


def test_another_error_of_the_broker_is_raised_with_its_name() -> None:
    exchange = agree_on_versions(CLIENT)
    next(exchange)
    with pytest.raises(ClusterAuthorizationError, match="refused the ApiVersions request"):
        exchange.send(offers(NEWEST, error=31))


@pytest.mark.parametrize("api", SPOKEN)
def test_M15_the_highest_common_version_is_chosen(api: Api) -> None:
    low, high = SPOKEN[api]
    for offered in (VersionRange(0, high + 5), VersionRange(0, high), VersionRange(low, low), VersionRange(high, high + 1)):
        assert Versions({api: offered}).choose(api) == min(high, offered.high)


@pytest.mark.parametrize("api", SPOKEN)
@pytest.mark.parametrize("offered", ["too new", "too old", "not there"])
def test_M15_without_a_common_version_the_error_names_both_ranges(api: Api, offered: str) -> None:
    low, high = SPOKEN[api]
    offers_: dict[str, dict[int, VersionRange]] = {"too new": {api: VersionRange(high + 1, high + 3)}, "too old": {api: VersionRange(-5, low - 1)}, "not there": {}}
    ranges = offers_[offered]
    with pytest.raises(UnsupportedVersionError) as caught:
        Versions(ranges).choose(api)
    assert all(word in str(caught.value) for word in (api.title, str(SPOKEN[api]), str(ranges.get(api, "none"))))
    assert not Versions(ranges).usable(api)


def test_M15_a_request_may_limit_its_versions() -> None:
    versions = Versions({Api.FETCH: VersionRange(0, 17)})
    assert versions.choose(Api.FETCH, VersionRange(0, 12)) == 12
    with pytest.raises(UnsupportedVersionError, match="0-3"):
        versions.choose(Api.FETCH, VersionRange(0, 3))


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_T05_the_finalized_features_are_kept_with_their_epoch(version: int) -> None:
    exchange = agree_on_versions(CLIENT, version)
    next(exchange)
    message = answer(Api.API_VERSIONS, version, api_keys=[], finalized_features_epoch=7,
                     finalized_features=[{"name": "transaction.version", "max_version_level": 2, "min_version_level": 0}])
    features = agreed(exchange, message).features
    assert (features.epoch, features.level("transaction.version")) == ((7, 2) if version >= 3 else (-1, 0))
    assert features.level("group.version") == 0


def test_T05_the_features_of_the_newest_epoch_win() -> None:
    older, newer = Features(3, {"transaction.version": 2}), Features(4, {"transaction.version": 1})
    assert older.newer(newer) == newer.newer(older) == newer
    assert Features().newer(older) == older.newer(Features()) == older

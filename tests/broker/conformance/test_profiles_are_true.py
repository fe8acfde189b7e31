"""The profiles say what brokers say: compared with running ones of the releases that can be run here."""
from __future__ import annotations

from typing import Final

import pytest

from pyclient.codec.apis import Api
from pyclient.testing import LocalCluster
from pyclient.testing.fake.cluster import FakeCluster
from pyclient.testing.fake.model.profiles import PROFILES, Profile
from tests.broker.conformance.peer import NAMED, Connection
from tests.broker.conformance.script import Plain, Step

RELEASES: Final = {"3.9": "3.9.1", "4.3": "4.3.1"}
KIP_896: Final = (Api.FETCH, Api.LIST_OFFSETS, Api.OFFSET_COMMIT, Api.OFFSET_FETCH, Api.CREATE_TOPICS, Api.DELETE_TOPICS,
                  Api.OFFSET_FOR_LEADER_EPOCH, Api.WRITE_TXN_MARKERS, Api.DESCRIBE_ACLS, Api.CREATE_ACLS, Api.DELETE_ACLS,
                  Api.DESCRIBE_CONFIGS, Api.ALTER_REPLICA_LOG_DIRS, Api.DESCRIBE_LOG_DIRS, Api.CREATE_DELEGATION_TOKEN, Api.RENEW_DELEGATION_TOKEN,
                  Api.EXPIRE_DELEGATION_TOKEN, Api.DESCRIBE_DELEGATION_TOKEN)
"""3.9 takes older versions of these, of which there are no schemas here."""
OF_THE_QUORUM: Final = "kraft.version"
"""Its level depends on how the controllers were set up (static voters, as in the image: 0), not on the release."""


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def profile(release: str) -> Profile:
    return PROFILES[release]


@pytest.fixture(scope="module")
def said(release: str) -> Plain:
    """What a broker of the release answers."""
    with LocalCluster(version=RELEASES[release]) as cluster:
        return versions_of(cluster.nodes[0].host, cluster.nodes[0].port)


def versions_of(host: str, port: int) -> Plain:
    connection = Connection((host, port))
    connection.send(Step(api=Api.API_VERSIONS), 4, NAMED)
    answer = connection.receive(Api.API_VERSIONS, 4)
    connection.close()
    return answer


def levels(said: Plain) -> dict[str, int]:
    """The finalized features."""
    return {each["name"]: each["max_version_level"] for each in said["finalized_features"] if each["name"] != OF_THE_QUORUM}


def test_the_versions_are_a_brokers(profile: Profile, said: Plain) -> None:
    there = {each["api_key"]: (each["min_version"], each["max_version"]) for each in said["api_keys"]}
    for api, (low, high) in profile.advertised:
        assert high == there[api][1], api
        assert low == there[api][0] or (profile.name == "3.9" and api in KIP_896), api


def test_every_api_that_a_broker_offers_and_we_know_is_in_the_profile(profile: Profile, said: Plain) -> None:
    assert set(profile.apis) == {Api(each["api_key"]) for each in said["api_keys"] if each["api_key"] in list(Api)}


def test_the_features_are_a_brokers(profile: Profile, said: Plain) -> None:
    supported = {each["name"]: (each["min_version"], each["max_version"]) for each in said["supported_features"]}
    assert {name: (low, high) for name, (low, high, _) in profile.features.items()} == supported
    assert {name: level for name, (_, _, level) in profile.features.items() if level and name != OF_THE_QUORUM} == levels(said)


@pytest.mark.parametrize("level", [0, 1])
def test_a_cluster_has_the_levels_of_features_that_it_was_made_with(level: int) -> None:
    features = {"transaction.version": level}
    with LocalCluster(features=features) as real, FakeCluster(features=features) as fake:
        host, _, port = fake.bootstrap_servers.rpartition(":")
        there = levels(versions_of(real.nodes[0].host, real.nodes[0].port))
        assert there == levels(versions_of(host, int(port)))
    assert there.get("transaction.version", 0) == level

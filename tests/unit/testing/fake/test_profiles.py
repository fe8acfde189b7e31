"""What each release offers: read from the committed table, limited to what can be read and is answered."""
from __future__ import annotations

import pytest

from pyclient.codec.apis import Api, VersionRange
from pyclient.codec.messages import request_schema, response_schema
from pyclient.errors import ConfigurationError
from pyclient.testing.fake.handlers import HANDLERS
from pyclient.testing.fake.model.profiles import NEWEST, PROFILES, Profile, read_profiles

TABLE = """\
# a comment
9.8\tapi\tPRODUCE\t0\t0\t11
9.8\tapi\tVOTE\t52\t0\t2
9.8\tfeature\tmetadata.version\t1\t21\t21
9.9\tapi\tPRODUCE\t0\t3\t13
9.9\tfeature\tmetadata.version\t7\t30\t30
"""


def test_every_release_since_3_9_has_a_profile() -> None:
    assert list(PROFILES) == ["3.9", "4.0", "4.1", "4.2", "4.3"]
    assert max(PROFILES) == NEWEST


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_every_version_of_a_profile_can_be_read_and_written(profile: Profile) -> None:
    for api, (low, high) in profile.apis.items():
        for version in range(low, high + 1):
            assert request_schema(api, version).name == f"{api.title}Request"
            assert response_schema(api, version).name == f"{api.title}Response"


def test_a_table_gives_what_this_client_has_names_for() -> None:
    old, new = read_profiles(TABLE.splitlines()).values()
    assert (old.name, new.name) == ("9.8", "9.9")
    assert list(old.apis) == [Api.PRODUCE]
    assert new.features == {"metadata.version": (7, 30, 30)}


def test_versions_that_kafka_4_removed_are_not_accepted() -> None:
    old, new = read_profiles(TABLE.splitlines()).values()
    assert old.apis[Api.PRODUCE] == VersionRange(3, 11)
    assert new.apis[Api.PRODUCE] == VersionRange(3, 13)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_produce_is_advertised_from_0_and_accepted_from_3(profile: Profile) -> None:
    assert dict(profile.advertised)[Api.PRODUCE].low == 0
    assert profile.apis[Api.PRODUCE].low == 3


def test_an_api_without_handler_is_not_offered() -> None:
    limited = PROFILES[NEWEST].limited_to({Api.METADATA: None})
    assert list(limited.apis) == [Api.METADATA]
    assert limited.features == PROFILES[NEWEST].features


def test_every_family_is_offered_by_the_newest_release() -> None:
    assert set(HANDLERS) <= set(PROFILES[NEWEST].apis)


def test_a_cluster_may_have_another_level_of_a_feature() -> None:
    changed = PROFILES[NEWEST].with_features({"transaction.version": 1})
    assert (changed.level("transaction.version"), PROFILES[NEWEST].level("transaction.version")) == (1, 2)
    assert PROFILES["3.9"].level("transaction.version") == 0


@pytest.mark.parametrize(("release", "levels", "match"), [
    ("3.9", {"transaction.version": 1}, "Kafka 3.9 has no feature 'transaction.version'"),
    (NEWEST, {"transaction.version": 3}, "transaction.version=3 is not between 0 and 2"),
    (NEWEST, {"transactions": 1}, "no feature 'transactions', but .*transaction.version")])
def test_a_feature_or_level_that_the_release_lacks_is_refused(release: str, levels: dict[str, int], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        PROFILES[release].with_features(levels)

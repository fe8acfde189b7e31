"""APIs and versions of each Kafka release, extracted from its jars; one profile per release.

The figures are in ``releases.tsv``; the exceptions are here.
"""
from __future__ import annotations

import importlib.resources
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final, Self

import attrs

from pyclient.codec.apis import Api, VersionRange
from pyclient.errors import ConfigurationError

NEWEST: Final = "4.3"
ADVERTISED_SINCE: Final = {Api.PRODUCE: 0}
"""4.x brokers accept Produce from version 3 but advertise 0: without it librdkafka sends batches of before 0.10."""


@attrs.frozen(kw_only=True)
class Profile:
    """How a fake cluster behaves as one release of Kafka does."""

    name: str
    apis: Mapping[Api, VersionRange]
    """What is accepted."""
    features: Mapping[str, tuple[int, int, int]] = attrs.field(factory=dict)
    """Feature → lowest supported, highest supported, finalized level."""

    @property
    def advertised(self) -> Iterator[tuple[Api, VersionRange]]:
        """What ApiVersions says."""
        return ((api, VersionRange(ADVERTISED_SINCE.get(api, low), high)) for api, (low, high) in self.apis.items())

    def is_since(self, release: str) -> bool:
        """Whether it is this release or a later one."""
        return _numbers(self.name) >= _numbers(release)

    def with_features(self, levels: Mapping[str, int]) -> Self:
        """The same with other finalized levels, as a cluster whose storage was formatted so.

        Raises:
            ConfigurationError: the release has no such feature, or not this level.
        """
        features = dict(self.features)
        for name, level in levels.items():
            if name not in features:
                raise ConfigurationError(f"features: Kafka {self.name} has no feature {name!r}, but {', '.join(features)}", option="features")
            low, high, _ = features[name]
            if not low <= level <= high:
                raise ConfigurationError(f"features: {name}={level} is not between {low} and {high}, which Kafka {self.name} supports", option="features")
            features[name] = low, high, level
        return attrs.evolve(self, features=features)

    def level(self, feature: str) -> int:
        """The finalized level of a feature; 0 where the release has none."""
        return self.features[feature][2] if feature in self.features else 0

    def limited_to(self, answered: Container[Api]) -> Self:
        """The same without the APIs that have no handler."""
        return attrs.evolve(self, apis={api: versions for api, versions in self.apis.items() if api in answered})


def _numbers(release: str) -> list[int]:
    return [int(each) for each in release.split(".")]


_BY_KEY: Final[Mapping[int, Api]] = {api.value: api for api in Api}


def read_profiles(lines: Iterable[str]) -> dict[str, Profile]:
    """The profiles of a table such as ``releases.tsv``, oldest first; APIs that `Api` lacks are left out.

    They are known by their key: Kafka 4.1 renamed one.
    """
    apis: dict[str, dict[Api, VersionRange]] = {}
    features: dict[str, dict[str, tuple[int, int, int]]] = {}
    for line in lines:
        if line.startswith("#"):
            continue
        release, kind, name, *text = line.split("\t")
        numbers = [int(each) for each in text]
        if kind == "feature":
            features.setdefault(release, {})[name] = (numbers[0], numbers[1], numbers[2])
        elif numbers[0] in _BY_KEY:
            apis.setdefault(release, {})[_BY_KEY[numbers[0]]] = VersionRange(numbers[1], numbers[2])
    readable = apis[max(apis)]
    return {name: Profile(name=name, apis=_readable(found, readable), features=features[name]) for name, found in apis.items()}


def _readable(apis: Mapping[Api, VersionRange], readable: Mapping[Api, VersionRange]) -> dict[Api, VersionRange]:
    """Without the versions that Kafka 4.0 removed (KIP-896): kio has no schemas of them."""
    return {api: VersionRange(max(low, readable[api].low), high) for api, (low, high) in apis.items()}


PROFILES: Final[Mapping[str, Profile]] = read_profiles(
    importlib.resources.files("pyclient.testing.fake.model").joinpath("releases.tsv").read_text("utf-8").splitlines())

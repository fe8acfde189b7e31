"""Which APIs and versions each release of Kafka offers to clients, as its own jars say; one profile per release."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from pyclient.codec.apis import Api, VersionRange


@attrs.frozen(kw_only=True)
class Profile:
    """How a fake cluster behaves as one release of Kafka does."""

    name: str
    apis: Mapping[Api, VersionRange]
    features: Mapping[str, tuple[int, int, int]] = attrs.field(factory=dict)
    """Feature → lowest supported, highest supported, finalized level."""


_KAFKA_4_3: Final = Profile(name="4.3", apis={
    Api.PRODUCE: VersionRange(3, 13),
    Api.FETCH: VersionRange(4, 18),
    Api.METADATA: VersionRange(0, 13),
    Api.API_VERSIONS: VersionRange(0, 4),
})

PROFILES: Final[Mapping[str, Profile]] = {each.name: each for each in (_KAFKA_4_3,)}
NEWEST: Final = "4.3"

"""Exchanges that come before a connection is ready: generators that yield requests and are sent responses.

The caller writes, reads and waits. A response is a decoded message; a failure is thrown into the generator.
"""
from __future__ import annotations

import functools
from collections.abc import Generator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import attrs

from pyclient.codec.apis import NEEDS, OLDEST, SPOKEN, Api, VersionRange
from pyclient.errors import DisconnectError, ProtocolError, UnsupportedVersionError, error_for

UNSUPPORTED_VERSION: Final = 35


@attrs.frozen
class HandshakeRequest:
    """A request written outside of the managers: before the connection is ready, or to authenticate again."""

    api: Api
    version: int
    fields: dict[str, object]


Exchange: TypeAlias = Generator[HandshakeRequest, Any, "Versions"]


class VersionZeroNeededError(Exception):
    """The response cannot be decoded: connect again and send ApiVersions v0 (M08)."""


@attrs.frozen
class ClientInfo:
    """Client software name and version; brokers accept letters, digits, dots and dashes only (KIP-511)."""

    name: str
    version: str


@attrs.frozen
class Features:
    """The features that the cluster has finalized, as one broker knows them (KIP-584): each name with its level.

    *epoch* rises with each change; -1: the broker knows of none.
    """

    epoch: int = -1
    levels: Mapping[str, int] = attrs.field(factory=dict)

    def level(self, name: str) -> int:
        """The level up to which a feature is switched on; 0: it is off."""
        return self.levels.get(name, 0)

    def newer(self, other: Features) -> Features:
        """The one of the later epoch; brokers learn of a change one after the other (T05)."""
        return other if other.epoch > self.epoch else self

    @classmethod
    def from_response(cls, response: Any) -> Features:
        """Those of an ApiVersions response; versions before 3 have none."""
        finalized = getattr(response, "finalized_features", ())
        return cls(getattr(response, "finalized_features_epoch", -1), MappingProxyType({each.name: each.max_version_level for each in finalized}))


@attrs.frozen
class Versions:
    """The version ranges that a broker offers, by API key, and the features that it knows to be finalized."""

    offered: Mapping[int, VersionRange] = attrs.field(factory=dict)
    features: Features = attrs.field(factory=Features)
    _chosen: dict[tuple[Api, VersionRange | None], int] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    def usable(self, api: Api, limits: VersionRange | None = None) -> VersionRange:
        """The versions that both sides support, within *limits*; may be empty."""
        common = SPOKEN[api].common(self.offered.get(api, VersionRange(0, -1)))
        return common.common(limits) if limits is not None else common

    def choose(self, api: Api, limits: VersionRange | None = None) -> int:
        """The highest common version.

        Raises:
            UnsupportedVersionError: there is none; names both ranges, and the releases of Kafka that have them.
        """
        chosen = self._chosen.get((api, limits))
        return self._choose(api, limits) if chosen is None else chosen

    def _choose(self, api: Api, limits: VersionRange | None) -> int:
        common = self.usable(api, limits)
        if not common:
            raise UnsupportedVersionError(self._why_none(api, limits))
        self._chosen[api, limits] = common.high
        return common.high

    def _why_none(self, api: Api, limits: VersionRange | None) -> str:
        spoken = SPOKEN[api] if limits is None else limits
        offered = self.offered.get(api)
        need = NEEDS.get((api, spoken.low), OLDEST)
        purpose = f" {need.purpose}" if need.purpose else ""
        said = f"{api.title}: this client needs one of the versions {spoken}{purpose}, the broker has {offered or 'none'}."
        if api is Api.METADATA and not offered:
            return f"{said} It is a controller: give brokers as bootstrap_servers; bootstrap_controllers binds an admin to controllers."
        if offered and offered.low > spoken.high:
            return f"{said} Use a newer release of this client."
        return f"{said} Brokers of Kafka {need.release} or newer have them: upgrade this one, or do without."

    @classmethod
    def from_response(cls, response: Any) -> Versions:
        """The ranges of an ApiVersions response."""
        return cls(_ranges(tuple((each.api_key, each.min_version, each.max_version) for each in response.api_keys)), Features.from_response(response))


@functools.lru_cache(maxsize=16)
def _ranges(offered: tuple[tuple[int, int, int], ...]) -> Mapping[int, VersionRange]:
    """One read-only table for all connections to brokers of a release: each of its 75 ranges takes memory."""
    return MappingProxyType({key: VersionRange(low, high) for key, low, high in offered})


def agree_on_versions(client: ClientInfo, newest: int = SPOKEN[Api.API_VERSIONS].high) -> Exchange:
    """Get the broker's versions, first with our newest ApiVersions; an older broker refuses and names its range.

    Raises:
        VersionZeroNeededError: the response does not decode, or the peer closed the connection; only when *newest* > 0.
    """
    version = newest
    while True:
        try:
            response = yield HandshakeRequest(Api.API_VERSIONS, version, _client_fields(client, version))
        except (ProtocolError, DisconnectError) as error:
            if version > 0:
                raise VersionZeroNeededError(str(error)) from error
            raise
        if response.error_code == UNSUPPORTED_VERSION and version > 0:
            version = _lower_version(response, version)
        elif response.error_code:
            raise error_for(response.error_code, "the broker refused the ApiVersions request")
        else:
            return Versions.from_response(response)


def _client_fields(client: ClientInfo, version: int) -> dict[str, object]:
    return {"client_software_name": client.name, "client_software_version": client.version} if version >= 3 else {}


def _lower_version(response: Any, refused: int) -> int:
    """The version to send after a refusal: the broker's highest below the refused one, else 0."""
    offered = Versions.from_response(response).offered.get(Api.API_VERSIONS, VersionRange(0, 0))
    return min(offered.high, refused - 1) if offered.high >= 0 else 0

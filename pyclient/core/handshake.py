"""Exchanges that must end before a connection is ready: generators that yield questions and are sent answers.

Who waits, and how, is not known here. An answer is a decoded message; a failure is thrown into the generator.
"""
from __future__ import annotations

from collections.abc import Generator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import attrs

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.errors import DisconnectError, ProtocolError, UnsupportedVersionError, error_for

UNSUPPORTED_VERSION: Final = 35


@attrs.frozen
class Ask:
    """A question on a connection that is not ready yet."""

    api: Api
    version: int
    fields: dict[str, object]


Exchange: TypeAlias = Generator[Ask, Any, "Versions"]


class TryVersionZero(Exception):
    """The answer cannot be understood: connect again and ask in version 0 (M08)."""


@attrs.frozen
class ClientInfo:
    """What the client says of itself; the broker accepts letters, digits, dots and dashes only (KIP-511)."""

    name: str
    version: str


@attrs.frozen
class Versions:
    """The version ranges a broker offers, by API key."""

    offered: Mapping[int, VersionRange] = attrs.field(factory=dict)
    _chosen: dict[tuple[Api, VersionRange | None], int] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    def usable(self, api: Api, limits: VersionRange | None = None) -> VersionRange:
        """The versions both sides speak, within *limits*; may be empty."""
        common = SPOKEN[api].common(self.offered.get(api, VersionRange(0, -1)))
        return common.common(limits) if limits is not None else common

    def choose(self, api: Api, limits: VersionRange | None = None) -> int:
        """The highest common version.

        Raises:
            UnsupportedVersionError: the broker is too old or too new for this request.
        """
        chosen = self._chosen.get((api, limits))
        return self._choose(api, limits) if chosen is None else chosen

    def _choose(self, api: Api, limits: VersionRange | None) -> int:
        common = self.usable(api, limits)
        if not common:
            raise UnsupportedVersionError(
                f"{api.title}: this client speaks versions {limits or SPOKEN[api]}, the broker "
                f"{self.offered.get(api, 'none')}. Use a broker of Kafka 2.1 or newer, or a newer client.")
        self._chosen[api, limits] = common.high
        return common.high

    @classmethod
    def from_answer(cls, answer: Any) -> Versions:
        """Read the list of an ApiVersions answer."""
        return cls(MappingProxyType({each.api_key: VersionRange(each.min_version, each.max_version) for each in answer.api_keys}))


def agree_on_versions(client: ClientInfo, newest: int = SPOKEN[Api.API_VERSIONS].high) -> Exchange:
    """Ask for the broker's versions, first in our newest; an older broker answers with what it has, in version 0.

    Raises:
        TryVersionZero: the answer does not decode, or the peer hung up on the question; only when *newest* > 0.
    """
    version = newest
    while True:
        try:
            answer = yield Ask(Api.API_VERSIONS, version, _introduction(client, version))
        except (ProtocolError, DisconnectError) as error:
            if version > 0:
                raise TryVersionZero(str(error)) from error
            raise
        if answer.error_code == UNSUPPORTED_VERSION and version > 0:
            version = _fall_back(answer, version)
        elif answer.error_code:
            raise error_for(answer.error_code, "the broker refused to tell its API versions")
        else:
            return Versions.from_answer(answer)


def _introduction(client: ClientInfo, version: int) -> dict[str, object]:
    return {"client_software_name": client.name, "client_software_version": client.version} if version >= 3 else {}


def _fall_back(answer: Any, refused: int) -> int:
    """The version to ask in after a refusal: the broker's highest below the refused one, else 0."""
    offered = Versions.from_answer(answer).offered.get(Api.API_VERSIONS, VersionRange(0, 0))
    return min(offered.high, refused - 1) if offered.high >= 0 else 0

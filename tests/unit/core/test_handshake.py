"""Agreeing on versions: what is asked, and what each answer or failure leads to (M08, M15)."""
from __future__ import annotations

from typing import Any

import pytest

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.core.handshake import Ask, ClientInfo, Exchange, TryVersionZero, Versions, agree_on_versions
from pyclient.errors import ConnectionLost, ProtocolError, UnsupportedVersionError
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


def test_M08_the_newest_version_is_asked_for_first_and_introduces_the_client() -> None:
    question = next(agree_on_versions(CLIENT))
    introduction: dict[str, object] = {"client_software_name": "pyclient", "client_software_version": "1.0"}
    assert question == Ask(Api.API_VERSIONS, NEWEST, introduction)

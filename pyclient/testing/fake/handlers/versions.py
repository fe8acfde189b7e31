"""ApiVersions: what the profile offers."""
from __future__ import annotations

import re
from typing import Final

from kio.schema.errors import ErrorCode

from pyclient.codec.apis import Api
from pyclient.testing.fake.model.request import Request, Fields
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.profiles import NEWEST, PROFILES
from pyclient.testing.fake.model.sasl import session_of

SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
NAMED_SINCE: Final = 3
_VERSIONS: Final = PROFILES[NEWEST].apis[Api.API_VERSIONS]
"""The same in every release."""


def api_versions(kafka: Kafka, request: Request) -> Fields:
    """The version ranges, and the features with their finalized levels."""
    if request.version >= NAMED_SINCE and not _is_well_named(request):
        return refuse_api_versions(request, ErrorCode.invalid_request)
    session = session_of(request.connection)
    if session is not None:
        session.on_versions_requested()
    features = kafka.profile.features
    return {
        "error_code": 0, "throttle_time": 0, "api_keys": _ranges(kafka),
        "supported_features": [
            {"name": name, "min_version": low, "max_version": high} for name, (low, high, _) in features.items()
            if low > 0 or request.version >= 4
        ],
        "finalized_features_epoch": 1,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, (_, _, level) in features.items() if level > 0
        ],
    }


def refuse_api_versions(_request: Request, code: int) -> Fields:
    """An error, without ranges; that a version is not known comes with the range that is (KIP-511)."""
    low, high = _VERSIONS
    known = [{"api_key": int(Api.API_VERSIONS), "min_version": low, "max_version": high}] if code == ErrorCode.unsupported_version else []
    return {"error_code": code, "throttle_time": 0, "api_keys": known}


def _ranges(kafka: Kafka) -> list[Fields]:
    return [{"api_key": int(api), "min_version": low, "max_version": high} for api, (low, high) in kafka.profile.advertised]


def _is_well_named(request: Request) -> bool:
    return all(SOFTWARE_NAME.fullmatch(text) for text in (request.body.client_software_name, request.body.client_software_version))

"""Who answers which API: one row each. A family's file holds its handlers, refusals and own state, and nothing else does."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyclient.codec.apis import Api
from pyclient.testing.fake.asking import Row
from pyclient.testing.fake.families import metadata, versions

FAMILIES: Final[Mapping[Api, Row]] = {
    Api.API_VERSIONS: Row(versions.api_versions, versions.refuse_api_versions),
    Api.METADATA: Row(metadata.metadata, metadata.refuse_metadata),
}
